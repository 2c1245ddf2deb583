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
    "  verdict: n3: clear",
    "  to do: read the traceback",
]
LOST = {"class": "gpu_hw", "whose": "node", "says": "a fault", "nodes": {}, "verdict": "exclude", "place": None}
KILLED = {
    "class": "unknown", "whose": "unknown", "confidence": "unknown", "says": "it was ended without a reason",
    "place": None, "nodes": {"n1": "check", "n2": "exclude"},
}  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "lines"),
    [
        ({}, LINES),
        ({"class": "none"}, []),
        (
            {"ranks": [0, 1], "nodes": {}, "place": None, "fix": []},
            [LINES[0], "  began with: ranks 0, 1 of 4", LINES[2]],
        ),
        ({"ranks": [], "nodes": {}, "place": None, "evidence": None, "fix": []}, LINES[:1]),
        ({"ranks": "x", "nodes": 7, "place": "y", "evidence": [], "fix": {}, "of": None, "last": 3}, LINES[:1]),
        ({"means": "a key\x1b[2J is missing"}, [LINES[0].replace(FORM["says"], "a key?[2J is missing"), *LINES[1:]]),
        # The verdict, also where no line names the node.
        (
            {**LOST, "ranks": [], "evidence": None, "fix": []},
            ["likely cause: a fault (gpu_hw, sure; the node's)", "  verdict: exclude its node, which is not named"],
        ),
        # Unknown, with the last that is known.
        (
            {**KILLED, "evidence": None, "last": {"file": "a.log", "lines": ["step 6", "step 7"]}, "beside": "code 1"},
            [
                "likely cause: unknown; it was ended without a reason",
                "  began with: rank 2 of 4 on n1, n2",
                "  a.log, its last line: step 7",
                "  code 1",
                "  verdict: n1: check, n2: exclude",
                "  to do: read the traceback",
            ],
        ),
        ({**KILLED, "means": "something sent SIGKILL"}, ["likely cause: unknown; something sent SIGKILL"]),
    ],
)
def test_sentences(changed: dict[str, Any], lines: list[str]) -> None:
    """The file is a user's, so no value is trusted."""
    found = diagnoses.sentences({**FORM, **changed})
    assert found[: len(lines) if "means" in changed else None] == lines


def test_six_lines() -> None:
    """There are never more: the step is left out."""
    found = diagnoses.sentences({**FORM, "step": "step 3", "beside": "x"})
    assert (len(found), [each for each in found if "step 3" in each]) == (6, [])
    assert "  its last step: step 3" in diagnoses.sentences({**FORM, "step": "step 3"})


def test_the_newest_attempts_stay(tmp_path: Path) -> None:
    """The file is bounded, and read back as it was written."""
    for attempt in range(diagnoses.MOST + 3):
        diagnoses.write(tmp_path, attempt, FORM, "c")
    assert diagnoses.read(tmp_path, "c") == dict.fromkeys(range(3, diagnoses.MOST + 3), FORM)
    assert diagnoses.read(tmp_path, "another") == {}


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{", '{"attempts": []}', '{"attempts": {"x": {}, "1": []}}', json.dumps({"attempts": None})),
        json.dumps({"attempts": {"9" * 5000: {}}}),  # more digits than Python reads
    ],
)
def test_any_content(text: str, tmp_path: Path) -> None:
    """The job's user may write anything there."""
    (tmp_path / diagnoses.FILE).write_text(text)
    assert diagnoses.read(tmp_path) == {}
