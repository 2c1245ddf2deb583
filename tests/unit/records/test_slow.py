"""Notices that a program was slow: when one is due, and how a file with any content is read."""

import json
from pathlib import Path

import pytest

from slurm_plugin.records import slow
from slurm_plugin.records.slow import RATIO, STEPS, Notice


def test_when_a_notice_is_due() -> None:
    """Once in an attempt, and once in an hour over all attempts, each kind for itself."""
    known = [Notice(1000.0, 1, RATIO, "x")]
    assert not slow.due(known, RATIO, 1, 99_999.0)
    assert not slow.due(known, RATIO, 2, 4599.0)
    assert slow.due(known, RATIO, 2, 4600.0)
    assert slow.due(known, STEPS, 1, 1001.0)


def test_a_file(tmp_path: Path) -> None:
    """What was written is read. Of a hostile file only lines of the form count, with printable, short words."""
    path = tmp_path / slow.FILE
    assert slow.newest(path) is None
    notice = Notice(1.8e9, 2, STEPS, "a step takes 2 s", ("n2: accelerator 1 draws 400 W",))
    slow.write(path, notice)
    assert slow.read(path) == [notice]
    assert notice.words == "a step takes 2 s; n2: accelerator 1 draws 400 W"
    assert Notice(1.8e9, 2, STEPS, "a step takes 2 s").words == f"a step takes 2 s; {slow.NO_SUSPECT}"
    with path.open("a") as file:
        file.write('[]\n{"t":2}\n{"t":3,"attempt":1,"kind":1,"text":"x"}\n')
        line = {"t": 4, "attempt": 1, "kind": "steps", "text": "\x1b[2J" + "y" * 999, "suspects": [7, "\n" * 3] * 20}
        file.write(json.dumps(line) + "\n")
    assert slow.newest(path) == Notice(4.0, 1, STEPS, "?[2J" + "y" * 296, ("???",) * 4)


def test_expressions() -> None:
    """They need two groups, by name or by place."""
    slow.check(slow.EXAMPLE)
    slow.check(r"(\d+)/(\d+)")
    for wrong in ("(", r"(\d+)", "x" * 2000, r"\d+"):
        with pytest.raises(ValueError, match="a regular expression"):
            slow.check(wrong)
