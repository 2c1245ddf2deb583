"""`slurm-plugin submit --edit`: the spec is changed in an editor first, until it is right."""

import sys
from pathlib import Path

import pytest

from slurm_plugin.__main__ import main
from tests.terminal import on_a_terminal

SPEC = "name: old\nmode: single\ncommand: python3 x.py\n"
# Each call makes the next change.
EDITOR = """\
#!/bin/sh
printf '%s\\n' "$1" >>"$0.files"
n=$(wc -l <"$0.files")
eval "sed -i \\"\\$CHANGE$n\\" \\"\\$1\\""
"""
ARGV = [sys.executable, "-m", "slurm_plugin", "submit", "--edit", "--dry-run", "job.yaml"]


def edited(home: Path, *changes: str, typed: str = "") -> tuple[str, int]:
    """Submit job.yaml with these changes, each made in a new call of the editor."""
    (home / "job.yaml").write_text(SPEC)
    editor = home / "my editor"
    editor.write_text(EDITOR)
    editor.chmod(0o755)
    environ = {f"CHANGE{number}": change for number, change in enumerate(changes, 1)}
    return on_a_terminal(ARGV, {**environ, "VISUAL": f"'{editor}'"}, typed=typed, cwd=home)


def test_the_edited_spec_is_submitted(home: Path) -> None:
    """And the file stays as it is. The editor gets a copy that it knows as YAML."""
    shown, code = edited(home, "s/old/new/")
    assert code == 0, shown
    assert "#SBATCH --job-name=new" in shown
    assert (home / "job.yaml").read_text() == SPEC
    assert (home / "my editor.files").read_text().endswith(".yaml\n")


def test_a_mistake_is_edited_again(home: Path) -> None:
    """The errors are shown, and the next call of the editor has the text of the first one."""
    shown, code = edited(home, "s/mode:/mood:/; s/old/new/", "s/mood:/mode:/", typed="\n")
    assert code == 0, shown
    assert "mood" in shown.partition("edit it again?")[0]
    assert "#SBATCH --job-name=new" in shown


def test_giving_up(home: Path) -> None:
    """Nothing is submitted."""
    shown, code = edited(home, "s/mode:/mood:/", typed="n\n")
    assert code == 130
    assert "#SBATCH" not in shown


def test_an_editor_that_fails(home: Path) -> None:
    """Exit 2, with how to name another one."""
    (home / "job.yaml").write_text(SPEC)
    shown, code = on_a_terminal(ARGV, {"VISUAL": "false"}, cwd=home)
    assert code == 2
    assert "name an editor: EDITOR=vi" in shown


def test_without_a_terminal_or_with_a_search(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody could edit, and a search keeps its file."""
    (home / "job.yaml").write_text(SPEC)
    assert main(["submit", "--edit", "--dry-run", "job.yaml"]) == 2
    assert "--edit: found no terminal" in capsys.readouterr().err
    (home / "job.yaml").write_text(SPEC + "search: {}\n")
    assert main(["submit", "--edit", "--dry-run", "job.yaml"]) == 2
    assert "--edit: found a search" in capsys.readouterr().err
