"""The line with which a program on a node says that it is open."""

import json
import os
from pathlib import Path

import pytest

from slurm_plugin.records import open_program
from slurm_plugin.records.open_program import OpenProgram

OPENED = OpenProgram("jupyter", "n1", "/run/x/jupyter.sock", "/?token=abc", "17.3", (), ssh=False)


def test_there_and_back() -> None:
    """It is found between the lines of srun and of others, in stdout and in a file."""
    assert open_program.find(f"srun: error: x\n{OPENED.line}\nmore") == OPENED
    shows = OPENED._replace(shows=("a=/b", "=/c"), ssh=True)
    assert open_program.find(f"{shows.line}\n") == shows
    assert open_program.find(OPENED.line) is None  # not complete yet
    assert open_program.find("") is None


@pytest.mark.parametrize(
    "change",
    [{"v": 2}, {"socket": 3}, {"shows": "x"}, {"shows": [1]}, {"more": ""}, {"address": None}],
)
def test_another_form(change: dict[str, object]) -> None:
    """It is not used."""
    mark, _, text = OPENED.line.partition(" ")
    assert open_program.find(f"{mark} {json.dumps({**json.loads(text), **change})}\n") is None
    assert open_program.find(f"{mark} []\n{mark} {text}\n") is None
    assert open_program.find(f"{mark} {'[' * 100_000}\n") is None


def test_of_a_file(tmp_path: Path) -> None:
    """A link, a pipe and a missing file have no answer."""
    (tmp_path / "own").write_text(f"{OPENED.line}\n")
    (tmp_path / "link").symlink_to(tmp_path / "own")
    os.mkfifo(tmp_path / "pipe")
    found = {name: open_program.read(str(tmp_path / name)) for name in ("own", "link", "pipe", "none")}
    assert found == {"own": OPENED, "link": None, "pipe": None, "none": None}
