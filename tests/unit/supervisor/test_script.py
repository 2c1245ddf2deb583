"""Mirrors slurm_plugin/supervisor/script.py: a script is copied out of its batch script to the place where it runs."""

import os
import stat
import subprocess
import sys
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


@pytest.mark.parametrize("fault", ["full", "noexec", "elsewhere"])
def test_a_directory_that_cannot_hold_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    """The user's script runs from memory; if only the site requests features, the error is raised."""
    monkeypatch.chdir(tmp_path)
    if fault == "full":
        monkeypatch.setattr(job_directory, "directory", lambda *_, **__: tmp_path / "missing")
    elif fault == "noexec":
        monkeypatch.setattr(os, "access", lambda *_: False)
    else:
        (tmp_path / ".slurm_plugin").write_text("no directory")
    first, *words = script.command(given := batch(tmp_path, "a b"), RUN)
    assert words == ["a b"]
    assert Path(first).read_bytes() == OWN
    with pytest.raises(OSError, match=r"slurm_script|\.slurm_plugin"):
        script.command(given._replace(of_site=True), RUN)


def test_a_batch_script_that_was_changed_is_told(tmp_path: Path) -> None:
    """A plug-in of the site may have rewritten it."""
    given = batch(tmp_path)._replace(mark="#slurm_plugin-script-y")
    with pytest.raises(UsageError, match="no line #slurm_plugin-script-y: something has changed it"):
        script.command(given, RUN)


WISHES = {
    "arbitrary": ("SLURM_DISTRIBUTION=arbitrary", 2, "the distribution 'arbitrary'"),
    "no srun": ("PATH=/nowhere", 3, "srun was not found on the PATH"),
    "changed": ("", 2, "something has changed it"),
    "not a directory": ("", 4, ".slurm_plugin/7'; the script runs from memory"),
}


@pytest.mark.parametrize("of_site", [True, False])
@pytest.mark.parametrize("fault", WISHES)
def test_a_wish_of_the_sites_fails_no_job(tmp_path: Path, fault: str, of_site: bool) -> None:
    """A script with the site's features runs without them. With the user's the job ends, or the script runs."""
    variable, code, why = WISHES[fault]
    own = b'#!/bin/sh\necho "ran $1 $(/bin/grep SigIgn /proc/self/status)"\nexit 4\n'
    given = plan(("a b",), plain=True, of_site=of_site, mark=MARK, retries=1)
    made = job_plan.batch_script("/bin/sh", [], given) + own
    if fault == "changed":
        made = made.replace(f"\n{MARK}\n".encode(), b"\n")
    (tmp_path / "batch").write_bytes(made)
    if fault == "not a directory":
        (tmp_path / ".slurm_plugin").write_text("")
    environ = {"PATH": "/usr/bin:/bin", "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1", "SLURM_NNODES": "1"}
    environ |= {"SLURM_JOB_NUM_NODES": "1", "SLURM_JOB_CPUS_PER_NODE": "1", "PYTHONPATH": str(Path.cwd())}
    environ |= dict([variable.split("=")]) if variable else {}
    argv = [sys.executable, "-m", "slurm_plugin", "job", str(tmp_path / "batch")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=tmp_path, env=environ)
    if of_site:
        assert (done.returncode, done.stderr) == (4, "")
        assert done.stdout.startswith("ran a b SigIgn:")
    else:
        assert done.returncode == code, done.stdout
        assert why in done.stdout
