"""Long output goes through the user's pager on a terminal, and only there."""

import sys
from pathlib import Path

import pytest

from slurm_plugin.cli.nodeside import output
from tests.terminal import on_a_terminal

CODE = r"""
import sys
from slurm_plugin.cli.nodeside import output
output.show("\n".join(map(str, range(int(sys.argv[1])))))
"""


def numbers(count: int) -> str:
    return "".join(f"{number}\n" for number in range(count))


def test_only_what_is_longer_than_the_terminal(tmp_path: Path) -> None:
    """Ten lines need a pager on a terminal of ten lines, because of the prompt; nine do not."""
    mine = tmp_path / "mine"
    mine.write_text('#!/bin/sh\necho "paged LESS=$LESS"\nexec cat\n')
    mine.chmod(0o755)
    cases = [
        (9, str(mine), numbers(9)),
        (10, str(mine), f"paged LESS=FRX\n{numbers(10)}"),
        (10, "cat", numbers(10)),
        (5000, "head -n 3", numbers(3)),
    ]
    for lines, program, shown in cases:
        found = on_a_terminal([sys.executable, "-c", CODE, str(lines)], {"PAGER": program}, lines=10)
        assert found == (shown, 0), (lines, program)


def test_no_terminal_no_pager(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A pipe gets the text as it is."""
    monkeypatch.setenv("PAGER", "/nonexistent")
    output.show(numbers(500).removesuffix("\n"))
    assert capsys.readouterr().out == numbers(500)
