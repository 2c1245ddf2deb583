"""One command: what it is given, what comes back."""

import os
import sys
import time
from pathlib import Path

import pytest

from slurm_plugin.slurm.process import Command, reading_environment, run, run_together, submitting_environment

OUTER = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/root",
    "SLURM_CONF": "/etc/slurm/slurm.conf",
    "SLURM_PLUGIN_BACKEND": "cli",
    "SLURM_PLUGIN_ATTEMPT": "1",
    "SLURM_JOB_ID": "3",
    "SLURM_TIME_FORMAT": "relative",
    "SLURM_CLUSTERS": "other",
    "SLURM_CONFIG": "x",
    "SQUEUE_FORMAT": "%i",
    "SQUEUE_STATES": "PENDING",
    "SCONTROL_FUTURE": "1",
    "SINFO_FORMAT": "%N",
    "LC_ALL": "de_DE",
    "LANG": "de_DE",
    "SBATCH_PARTITION": "gpu",
    "TZ": "Asia/Tokyo",
}


def test_environment_to_read() -> None:
    """Nothing that changes what a command prints or means, times in UTC; SLURM_CONF says which Slurm."""
    kept = {"PATH", "HOME", "SLURM_CONF", "SLURM_PLUGIN_BACKEND", "SBATCH_PARTITION"}
    assert reading_environment(OUTER) == {**{name: OUTER[name] for name in kept}, "TZ": "UTC"}


def test_environment_to_submit() -> None:
    """The user's own goes to the job, an outer job's variables do not."""
    gone = {"SLURM_JOB_ID", "SLURM_TIME_FORMAT", "SLURM_CLUSTERS", "SLURM_CONFIG", "SLURM_PLUGIN_ATTEMPT"}
    assert submitting_environment(OUTER) == {name: OUTER[name] for name in OUTER if name not in gone}


def test_run_keeps_both_streams() -> None:
    """Output and errors apart, odd bytes replaced, a signal as a negative code."""
    code = "import os, sys; os.write(1, b'a\\xff'); os.write(2, b'b'); os.kill(os.getpid(), 9)"
    result = run([sys.executable, "-c", code], deadline_s=10, environ=os.environ)
    assert (result.code, result.out, result.err) == (-9, "a\ufffd", "b")


def test_run_does_not_wait_for_a_reader() -> None:
    """A command that does not read its input is no error."""
    assert run(["/bin/true"], deadline_s=10, environ={}, text="x" * 1_000_000).code == 0


def test_run_leaves_behind_what_left_the_group() -> None:
    """A deadline holds although a process with a session of its own keeps the pipes; what was said so far stays."""
    script = "echo before; setsid sleep 20 & sleep 30"
    began = time.monotonic()
    result = run(["/bin/sh", "-c", script], deadline_s=1.0, environ=os.environ)
    assert time.monotonic() - began < 15
    assert (result.code, result.out) == (None, "before\n")


def test_run_together(tmp_path: Path) -> None:
    """Side by side, as a pipe that each opens at one end shows; own stdins, the answers in the commands' order."""
    os.mkfifo(tmp_path / "fifo")
    commands = [
        Command(["/bin/sh", "-c", "cat; read line < fifo; echo $line"], "first ", str(tmp_path)),
        Command(["/bin/sh", "-c", "echo met > fifo; cat"], "second", str(tmp_path)),
    ]
    first, second = run_together(commands, deadline_s=10, environ=os.environ)
    assert (first.code, first.out, second.code, second.out) == (0, "first met\n", 0, "second")


def test_run_together_starts_all_or_none(tmp_path: Path) -> None:
    """Where one program does not exist, the others end."""
    commands = [Command(["/bin/sh", "-c", "exec sleep 300"], directory=str(tmp_path)), Command(["/nonexistent"])]
    with pytest.raises(FileNotFoundError):
        run_together(commands, deadline_s=10, environ=os.environ)
    assert not [pid for pid in Path("/proc").glob("[0-9]*/cwd") if os.path.realpath(pid) == str(tmp_path)]


def test_carriage_returns_stay() -> None:
    """They are a part of somebody's comment."""
    assert run(["/bin/cat"], deadline_s=10, environ={}, text="a\r\nb\rc").out == "a\r\nb\rc"
