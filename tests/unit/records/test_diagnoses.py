"""diagnosis.json, and a diagnosis in a few lines."""

import json
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.records import diagnoses

FORM: dict[str, Any] = {
    "class": "user_code",
    "says": "the program failed by itself",
    "means": "",
    "whose": "user",
    "confidence": "sure",
    "ranks": [2],
    "of": 4,
    "nodes": {"n3": "clear"},
    "place": {"file": "train.py", "line": 12, "name": "step"},
    "evidence": {"file": "a.log", "line": 48, "text": "KeyError: 'tokens'"},
    "fix": ["read the traceback", "and more"],
}
LINES = [
    "likely cause: the program failed by itself (user_code, sure; the program's or its request's)",
    "  began with: rank 2 of 4 on n3, at train.py, line 12, in step",
    "  a.log, line 48: KeyError: 'tokens'",
    "  to do: read the traceback",
]


@pytest.mark.parametrize(
    ("changed", "lines"),
    [
        ({}, LINES),
        ({"class": "none"}, []),
        ({"class": "unknown", "confidence": "unknown"}, []),
        (
            {"ranks": [0, 1], "nodes": {}, "place": None, "fix": []},
            [LINES[0], "  began with: ranks 0, 1 of 4", LINES[2]],
        ),
        ({"ranks": [], "nodes": {}, "place": None, "evidence": None, "fix": []}, LINES[:1]),
        ({"ranks": "x", "nodes": 7, "place": "y", "evidence": [], "fix": {}, "of": None}, LINES[:1]),
        ({"means": "a key\x1b[2J is missing"}, [LINES[0].replace(FORM["says"], "a key?[2J is missing"), *LINES[1:]]),
    ],
)
def test_sentences(changed: dict[str, Any], lines: list[str]) -> None:
    """At most four; the file is a user's, so no value is trusted."""
    assert diagnoses.sentences({**FORM, **changed}) == lines


def test_the_newest_attempts_stay(tmp_path: Path) -> None:
    """The file is bounded, and read back as it was written."""
    for attempt in range(diagnoses.MOST + 3):
        diagnoses.write(tmp_path, attempt, FORM, "c")
    assert diagnoses.read(tmp_path, "c") == dict.fromkeys(range(3, diagnoses.MOST + 3), FORM)
    assert diagnoses.read(tmp_path, "another") == {}


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"attempts": []}', '{"attempts": {"x": {}, "1": []}}', json.dumps({"attempts": None})]
)
def test_any_content(text: str, tmp_path: Path) -> None:
    """The job's user may write anything there."""
    (tmp_path / diagnoses.FILE).write_text(text)
    assert diagnoses.read(tmp_path) == {}
