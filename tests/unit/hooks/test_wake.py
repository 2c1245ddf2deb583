"""Leaving a worker behind: real processes, and a spool that they empty."""

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from slurm_plugin.after_run import Ended
from slurm_plugin.hooks import spool
from tests.unit.hooks.waiting import until

ENDED = Ended(7, 1, ("n1", "n2"))

WAKE = """
import sys
from pathlib import Path
from slurm_plugin.hooks import worker
worker.wake(Path(sys.argv[1]), {"slurm_bin": sys.argv[2], "recovery": {}})
print("the hook ends", flush=True)
"""


@pytest.fixture
def slow_squeue(tmp_path: Path) -> Path:
    """Commands of which squeue says that no job is known, once a file named `go` is there."""
    directory = tmp_path / "bin"
    directory.mkdir()
    script = f"#!/bin/sh\ntouch {tmp_path}/asked\nuntil [ -e {tmp_path}/go ]; do sleep 0.02; done\n"
    (directory / "squeue").write_text(script)
    (directory / "scontrol").write_text("#!/bin/sh\necho 'SLURM_VERSION = 22.05.8'\n")
    for program in directory.iterdir():
        program.chmod(0o755)
    return directory


def test_left_behind(tmp_path: Path, slow_squeue: Path) -> None:
    """The hook ends while the worker works; the worker lives on when the hook's process group is killed, and then ends.

    That is what slurmctld does with the group of EpilogSlurmctld when the hook has ended.
    """
    directory = tmp_path / "spool"
    directory.mkdir()
    spool.put(directory, ENDED)
    argv = [sys.executable, "-c", WAKE, str(directory), str(slow_squeue)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True, text=True) as hook:
        out, _ = hook.communicate(timeout=60)  # would hang if the worker held on to its output
        assert (hook.returncode, out) == (0, "the hook ends\n")
        with pytest.raises(ProcessLookupError):
            os.killpg(hook.pid, signal.SIGKILL)  # nobody is left in it
    until((tmp_path / "asked").exists)
    with (directory / "lock").open() as lock, pytest.raises(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    (tmp_path / "go").touch()
    until(lambda: not list(directory.glob("*.json")))
    with (directory / "lock").open() as lock:
        until(lambda: _locked(lock.fileno()))


def _locked(fd: int) -> bool:
    """Whether the lock could be taken: no worker is left."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def test_worker_that_cannot_work(tmp_path: Path) -> None:
    """Without Slurm's commands the worker ends and the entry stays for the next one; the hook is not harmed."""
    spool.put(tmp_path, ENDED)
    argv = [sys.executable, "-c", WAKE, str(tmp_path), "/nowhere"]
    result = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "the hook ends\n", "")
    until((tmp_path / "lock").exists)
    with (tmp_path / "lock").open() as lock:
        until(lambda: _locked(lock.fileno()))
    assert list(spool.entries(tmp_path)) == [ENDED]
