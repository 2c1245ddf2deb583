"""One command: what it is given, what comes back."""

import os
import sys
import time

from slurm_plugin.slurm.process import reading_environment, run, submitting_environment

OUTER = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/root",
    "SLURM_CONF": "/etc/slurm/slurm.conf",
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
}


def test_environment_to_read() -> None:
    """Nothing that changes what a command prints or means; SLURM_CONF says which Slurm."""
    kept = {"PATH", "HOME", "SLURM_CONF", "SBATCH_PARTITION"}
    assert reading_environment(OUTER) == {name: OUTER[name] for name in kept}


def test_environment_to_submit() -> None:
    """The user's own goes to the job, an outer job's variables do not."""
    gone = {"SLURM_JOB_ID", "SLURM_TIME_FORMAT", "SLURM_CLUSTERS", "SLURM_CONFIG"}
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
    script = "echo before; setsid sleep 4 & sleep 30"
    began = time.monotonic()
    result = run(["/bin/sh", "-c", script], deadline_s=0.3, environ=os.environ)
    assert time.monotonic() - began < 3.5
    assert (result.code, result.out) == (None, "before\n")
