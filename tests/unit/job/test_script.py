"""Mirrors slurm_plugin/job/script.py: a script is taken out of its batch script and put where it runs from."""

import argparse
import os
import stat
from pathlib import Path

import pytest

import hostfiles
from slurm_plugin.errors import UsageError
from slurm_plugin.job import main, script
from slurm_plugin.job.run import Run

MARK = "#slurm_plugin-script-x"
OWN = b"#!/bin/sh\necho \xff\x01\n\nno newline"
RUN = Run(7, 2, "main", hostfiles.from_lists("n[1-2]", job_id=7))


def options(directory: Path, *words: str) -> argparse.Namespace:
    """What `job supervise` was called with, in a directory of its own."""
    (directory / "batch").write_bytes(b"#!/bin/sh\nexec x " + MARK.encode() + b"\n" + MARK.encode() + b"\n" + OWN)
    return argparse.Namespace(script=[str(directory / "batch"), MARK], command=list(words))


def test_the_script_stands_where_only_its_user_can_reach_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the byte, under a name of each run's own; what stood there before is replaced and never written into."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / ".slurm_plugin" / "7" / "slurm_script.2"
    path.parent.mkdir(parents=True)
    (tmp_path / "victim").write_bytes(b"mine")
    path.symlink_to(tmp_path / "victim")
    assert script.command(options(tmp_path, "a b", "--"), RUN) == [str(path), "a b", "--"]
    assert path.read_bytes() == OWN
    assert stat.S_IMODE(os.lstat(path).st_mode) == 0o700
    assert (tmp_path / "victim").read_bytes() == b"mine"


def test_a_batch_script_that_was_changed_is_told(tmp_path: Path) -> None:
    """A plug-in of the site's may have rewritten it."""
    asked = options(tmp_path)
    asked.script[1] = "#slurm_plugin-script-y"
    with pytest.raises(UsageError, match="no line #slurm_plugin-script-y: something has changed it"):
        script.command(asked, RUN)


def test_a_command_or_a_script_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    """One of the two."""
    with pytest.raises(SystemExit):
        main(["supervise", "--mode=script", "--"])
    assert "a command is needed, or --script" in capsys.readouterr().err
