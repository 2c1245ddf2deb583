"""One command: its input and its output."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.slurm.process import (
    Command,
    plain_environment,
    reading_environment,
    run,
    run_together,
    submitting_environment,
)
from tests.gone import gone
from tests.waiting import HANG_S, until

OUTER = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/root",
    "SLURM_CONF": "/etc/slurm/slurm.conf",
    "SLURM_PLUGIN_BACKEND": "cli",
    "SLURM_PLUGIN_ATTEMPT": "1",
    "SLURM_JOB_ID": "3",
    "SLURM_TIME_FORMAT": "relative",
    "SLURM_CLUSTERS": "other",
    "SLURM_MPI_TYPE": "none",
    "SLURM_KILL_BAD_EXIT": "1",
    "SLURM_CPU_BIND": "cores",
    "SLURM_NTASKS": "4",
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
    """No variable that changes the output or its meaning. Times are in UTC, and SLURM_CONF is kept."""
    kept = {"PATH", "HOME", "SLURM_CONF", "SLURM_PLUGIN_BACKEND", "SBATCH_PARTITION"}
    assert reading_environment(OUTER) == {**{name: OUTER[name] for name in kept}, "TZ": "UTC"}


def test_environment_to_submit() -> None:
    """The job gets the user's variables. Inside a job the variables that a job sets are left out."""
    outside = {name: value for name, value in OUTER.items() if name != "SLURM_JOB_ID"}
    assert submitting_environment(outside) == outside
    gone = {
        "SLURM_JOB_ID",
        "SLURM_CONFIG",
        "SLURM_TIME_FORMAT",
        "SLURM_PLUGIN_ATTEMPT",
        "SLURM_CPU_BIND",
        "SLURM_NTASKS",
    }
    assert submitting_environment(OUTER) == {name: OUTER[name] for name in OUTER if name not in gone}


def test_environment_of_own_steps() -> None:
    """No variable of the user's, or of an outer job, changes a step of the plugin."""
    left = {"SLURM_CONF", "SLURM_PLUGIN_BACKEND"}
    assert {name for name in plain_environment(OUTER) if name.startswith("SLURM_")} == left


def test_run_keeps_both_streams() -> None:
    """Output and errors are separate, odd bytes are replaced, and a signal is a negative code."""
    code = "import os, sys; os.write(1, b'a\\xff'); os.write(2, b'b'); os.kill(os.getpid(), 9)"
    result = run([sys.executable, "-c", code], deadline_s=HANG_S, environ=os.environ)
    assert (result.code, result.out, result.err) == (-9, "a\ufffd", "b")


def test_run_does_not_wait_for_a_reader() -> None:
    """A command that does not read its input is no error."""
    assert run(["/bin/true"], deadline_s=HANG_S, environ={}, text="x" * 1_000_000).code == 0


def test_run_leaves_behind_what_left_the_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The deadline holds even if a process in another session keeps the pipes. Earlier output is kept."""
    note = tmp_path / "pid"
    script = f"echo before; setsid sleep 3600 & echo $! >{note}.new; mv {note}.new {note}; wait"
    real = subprocess.Popen.communicate

    def communicate(process: "subprocess.Popen[bytes]", *words: Any, **more: Any) -> Any:
        until(note.exists)
        until(lambda: os.getsid(int(note.read_text())) == int(note.read_text()))
        return real(process, *words, **more)

    monkeypatch.setattr(subprocess.Popen, "communicate", communicate)
    result = run(["/bin/sh", "-c", script], deadline_s=1.0, environ=os.environ)
    pid = int(note.read_text())
    assert not gone(pid)
    os.kill(pid, signal.SIGKILL)
    assert (result.code, result.out) == (None, "before\n")


def test_run_together(tmp_path: Path) -> None:
    """At the same time: each opens one end of a pipe. Each has its stdin; answers are in the commands' order."""
    os.mkfifo(tmp_path / "fifo")
    commands = [
        Command(["/bin/sh", "-c", "cat; read line < fifo; echo $line"], "first ", str(tmp_path)),
        Command(["/bin/sh", "-c", "echo met > fifo; cat"], "second", str(tmp_path)),
    ]
    first, second = run_together(commands, deadline_s=HANG_S, environ=os.environ)
    assert (first.code, first.out, second.code, second.out) == (0, "first met\n", 0, "second")


def test_run_together_starts_all_or_none(tmp_path: Path) -> None:
    """If one program does not exist, the others end."""
    commands = [Command(["/bin/sh", "-c", "exec sleep 3600"], directory=str(tmp_path)), Command(["/nonexistent"])]
    with pytest.raises(FileNotFoundError):
        run_together(commands, deadline_s=HANG_S, environ=os.environ)
    until(lambda: not [pid for pid in Path("/proc").glob("[0-9]*/cwd") if os.path.realpath(pid) == str(tmp_path)])


def test_carriage_returns_stay() -> None:
    """They belong to a user's comment."""
    assert run(["/bin/cat"], deadline_s=HANG_S, environ={}, text="a\r\nb\rc").out == "a\r\nb\rc"
