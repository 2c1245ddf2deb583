"""Text for a terminal."""

import sys

import pytest

from slurm_plugin.byhand import screen
from slurm_plugin.errors import printable


@pytest.mark.parametrize(
    ("terminal", "variables", "wanted"),
    [(True, {}, True), (False, {}, False), (True, {"NO_COLOR": "1"}, False), (True, {"TERM": "dumb"}, False)],
)
def test_coloured(monkeypatch: pytest.MonkeyPatch, terminal: bool, variables: dict[str, str], wanted: bool) -> None:
    """Only on a terminal that takes colours, and not against NO_COLOR."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    assert screen.coloured() is wanted


def test_columns() -> None:
    """As wide as their widest cell; no blanks at the end of a line; no rows, no lines."""
    assert screen.columns([("a", "bb", "c"), ("aaa", "", "")]) == ["a    bb  c", "aaa"]
    assert screen.columns([]) == []


def test_what_others_wrote_steers_no_terminal() -> None:
    """Nor does it make lines of its own."""
    assert printable("a\x1b[2Jb\nc\rd é") == "a?[2Jb?c?d é"
