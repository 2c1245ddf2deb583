"""The completion of bash, asked as bash asks it."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from slurm_plugin.cli.reference import bash
from slurm_plugin.cli.reference.tree import Node
from tests.unit.cli.reference.cases import each_case

# Splits the line as readline does, which also splits at `=`.
ASK = r"""
compopt() { :; }
source "$1"
read -ra words <<<"$2"
COMP_WORDS=()
for word in "${words[@]}"; do
    if [[ $word == --*=* ]]; then COMP_WORDS+=("${word%%=*}" = "${word#*=}"); else COMP_WORDS+=("$word"); fi
done
[[ $2 == *' ' ]] && COMP_WORDS+=('')
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_slurm_plugin
((${#COMPREPLY[@]})) && printf '%s\n' "${COMPREPLY[@]}"
true
"""


@pytest.fixture(scope="session")
def script(whole: Node, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of the script."""
    path = tmp_path_factory.mktemp("bash") / "slurm-plugin"
    path.write_text(bash.script(whole))
    return path


def offered_by(script: Path, line: str, environ: Mapping[str, str]) -> list[str]:
    """Return what bash offers."""
    argv = ["bash", "--norc", "-c", ASK, "bash", str(script), line]
    done = subprocess.run(argv, env=environ, cwd=environ["PWD"], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return sorted(done.stdout.splitlines())


@each_case
def test_offers(script: Path, surroundings: Mapping[str, str], line: str, offered: list[str]) -> None:
    """Verbs, options, values, and what Slurm and the directory have. Words that a shell would expand are left out."""
    assert offered_by(script, line, surroundings) == sorted(offered)


def test_a_slurm_that_hangs_or_is_missing(script: Path, surroundings: Mapping[str, str]) -> None:
    """Completion asks it for a limited time, and offers the jobs of the directory."""
    squeue = Path(surroundings["HOME"]) / "bin/squeue"
    squeue.write_text("#!/bin/sh\nexec sleep 999\n")
    assert offered_by(script, "slurm-plugin logs ", surroundings) == ["12"]
    squeue.unlink()
    bare = {**surroundings, "PATH": "/usr/bin:/bin"}
    assert offered_by(script, "slurm-plugin sandbox heal n", {**bare, "SLURM_CONF": "/nonexistent"}) == []


def test_it_starts_no_python(script: Path) -> None:
    """A Tab costs no interpreter."""
    assert "python" not in script.read_text()
    assert "$(slurm-plugin" not in script.read_text()
