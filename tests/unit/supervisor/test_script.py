"""Mirrors slurm_plugin/supervisor/script.py: a script is copied out of its batch script to the place where it runs."""

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import hostfiles
from slurm_plugin.errors import UsageError
from slurm_plugin.records import job_directory, job_plan
from slurm_plugin.records.job_plan import JobPlan
from slurm_plugin.supervisor import script
from slurm_plugin.supervisor.run import Run
from tests.unit.supervisor.plans import plan

MARK = "#slurm_plugin-script-x"
OWN = b"#!/bin/sh\necho \xff\x01\n\nno newline"
RUN = Run(7, 2, "main", hostfiles.from_lists("n[1-2]", job_id=7))


def batch(directory: Path, *words: str) -> JobPlan:
    """Write a batch script, and return its plan."""
    (directory / "batch").write_bytes(b"#!/bin/sh\nexec x " + MARK.encode() + b"\n" + MARK.encode() + b"\n" + OWN)
    return plan(words, mark=MARK, batch_script=str(directory / "batch"))


def test_the_script_stands_where_only_its_user_can_reach_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the byte, under a separate name for each run. An existing file is replaced, not written to."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / ".slurm_plugin" / "7" / "slurm_script.2"
    path.parent.mkdir(parents=True)
    (tmp_path / "victim").write_bytes(b"mine")
    path.symlink_to(tmp_path / "victim")
    assert script.command(batch(tmp_path, "a b", "--"), RUN) == (str(path), "a b", "--")
    assert path.read_bytes() == OWN
    assert stat.S_IMODE(os.lstat(path).st_mode) == 0o700
    assert (tmp_path / "victim").read_bytes() == b"mine"


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The script runs from the node's own disk, readable for its user alone."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "own"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(job_directory, "directory", lambda *_: tmp_path / "missing")
    (word,) = script.command(batch(tmp_path), RUN)
    assert Path(word).read_bytes() == OWN
    assert word.startswith(f"{tmp_path}/own/slurm_plugin.")
    assert stat.S_IMODE(os.lstat(Path(word).parent).st_mode) == 0o700


def test_a_batch_script_that_was_changed_is_told(tmp_path: Path) -> None:
    """A plug-in of the site may have rewritten it."""
    given = batch(tmp_path)._replace(mark="#slurm_plugin-script-y")
    with pytest.raises(UsageError, match="no line #slurm_plugin-script-y: something has changed it"):
        script.command(given, RUN)


@pytest.mark.parametrize("of_site", [True, False])
def test_a_wish_of_the_sites_fails_no_job(tmp_path: Path, of_site: bool) -> None:
    """In an unwritable directory a script with the site's features runs plainly; with the user's the job ends."""
    own = b'#!/bin/sh\necho "ran $1 $(grep SigIgn /proc/self/status)"\nexit 4\n'
    given = plan(("a b",), plain=True, of_site=of_site, mark=MARK)
    (tmp_path / "batch").write_bytes(job_plan.batch_script("/bin/sh", [], given) + own)
    (tmp_path / ".slurm_plugin").write_text("no directory")
    environ = {"PATH": "/usr/bin:/bin", "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1", "SLURM_NNODES": "1"}
    environ |= {"SLURM_JOB_NUM_NODES": "1", "SLURM_JOB_CPUS_PER_NODE": "1", "PYTHONPATH": str(Path.cwd())}
    argv = [sys.executable, "-m", "slurm_plugin", "job", str(tmp_path / "batch")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=tmp_path, env=environ)
    if of_site:
        assert (done.returncode, done.stderr) == (4, "")
        assert done.stdout.startswith("ran a b SigIgn:")
    else:
        assert done.returncode == 1
        assert ".slurm_plugin" in done.stdout.splitlines()[-1]
