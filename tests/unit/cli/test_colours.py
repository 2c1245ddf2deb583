"""Colours appear only on a terminal that takes them, and never with NO_COLOR."""

import re
import sys
from pathlib import Path

import pytest

from tests.terminal import on_a_terminal

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
COMMANDS = [["check", "--list"], ["diagnose", "--list"], ["diagnose", "log"]]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_no_color(tmp_path: Path, words: list[str]) -> None:
    """On a terminal there are colours; NO_COLOR, TERM=dumb or no terminal leaves the same text without them."""
    (tmp_path / "log").write_text("Traceback (most recent call last):\nKeyError: 'x'\n")
    argv = [sys.executable, "-m", "slurm_plugin", *words]
    given = {"PAGER": "cat"}
    shown, code = on_a_terminal(argv, given, cwd=tmp_path)
    plain = COLOUR.sub("", shown)
    assert plain != shown
    for environ in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert on_a_terminal(argv, {**given, **environ}, cwd=tmp_path) == (plain, code), environ
    assert on_a_terminal(argv, {**given, "NO_COLOR": ""}, cwd=tmp_path)[0] == shown
