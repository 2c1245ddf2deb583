"""The command tree, and a Slurm whose commands print what a test wants."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from slurm_plugin.__main__ import COMMANDS
from slurm_plugin.cli.group import LazyGroup
from slurm_plugin.cli.reference import tree
from slurm_plugin.cli.reference.tree import Node

SAID = {
    "squeue": "17 17\n18_[1-9%2] 18\n19_2 19\n$(touch\t/tmp/x) 20\n",
    "sinfo": "n1\nn2\nn2\n",
}


@pytest.fixture(scope="session")
def whole() -> Node:
    """Return the whole command tree."""
    return tree.read(LazyGroup(COMMANDS), ("slurm-plugin",))


@pytest.fixture
def surroundings(tmp_path: Path) -> Mapping[str, str]:
    """Return the environment of a shell whose Slurm has three jobs, in a directory with a spec and a job's records."""
    (tmp_path / "bin").mkdir()
    for name, said in SAID.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\ncat <<'END'\n{said}END\n")
        (tmp_path / "bin" / name).chmod(0o755)
    here = tmp_path / "here"
    (here / ".slurm_plugin/12").mkdir(parents=True)
    (here / ".slurm_plugin/no job; rm x").mkdir()
    (here / "my dir").mkdir()
    for name in ("job.yaml", "j b.yml", "job.txt"):
        (here / name).touch()
    return {
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "TERM": "xterm",
        "PWD": str(here),
    }
