"""Starting a worker: real processes, and a spool that they empty."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from slurm_plugin.controller import epilog, requeue_worker
from slurm_plugin.controller.requeue_policy import Ended
from tests.waiting import HANG_S, until

ENDED = Ended(7, 1, ("n1", "n2"))

WAKE = """
import sys
from pathlib import Path
from slurm_plugin.controller import epilog, requeue_worker
epilog.wake(Path(sys.argv[1]), {"slurm_bin": sys.argv[2], "recovery": {}, "metrics_directory": ""})
print("the hook ends", flush=True)
"""


@pytest.fixture
def slow_squeue(tmp_path: Path) -> Path:
    """Make commands of Slurm. squeue reports no job, when there is a file named `go`."""
    directory = tmp_path / "bin"
    directory.mkdir()
    script = f"#!/bin/sh\ntouch {tmp_path}/asked\nuntil [ -e {tmp_path}/go ]; do sleep 0.02; done\n"
    (directory / "squeue").write_text(script)
    (directory / "scontrol").write_text("#!/bin/sh\necho 'SLURM_VERSION = 22.05.8'\n")
    for program in directory.iterdir():
        program.chmod(0o755)
    return directory


def test_left_behind(tmp_path: Path, slow_squeue: Path) -> None:
    """The hook ends while the worker works. The worker survives the end of the hook's process group, and then ends.

    slurmctld kills the group of EpilogSlurmctld when the hook has ended.
    """
    directory = tmp_path / "spool"
    directory.mkdir()
    requeue_worker.put(directory, ENDED)
    argv = [sys.executable, "-c", WAKE, str(directory), str(slow_squeue)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True, text=True) as hook:
        out, _ = hook.communicate(timeout=HANG_S)  # would hang if the worker kept its output open
        assert (hook.returncode, out) == (0, "the hook ends\n")
        with pytest.raises(ProcessLookupError):
            os.killpg(hook.pid, signal.SIGKILL)  # no process is left in it
    until((tmp_path / "asked").exists)
    with (directory / "lock").open() as lock, pytest.raises(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    (tmp_path / "go").touch()
    until(lambda: not list(directory.glob("*.json")))
    with (directory / "lock").open() as lock:
        until(lambda: _locked(lock.fileno()))


def _locked(fd: int) -> bool:
    """Return whether the lock is free: no worker is left."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the guard could write of an entry is removed. The worker searches for the end instead."""
    (tmp_path / "7.1.json").write_text('{"job_id":7,"to')
    environ = {"JOB_ID": "7", "JOB_COMMENT": "[sp1;retries=3]", "JOB_NODELIST": "n[1-2]", "JOB_RESTART_COUNT": "1"}
    for name, value in environ.items():
        monkeypatch.setenv(f"SLURM_{name}", value)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    woken: list[bool] = []
    monkeypatch.setattr(epilog.site_settings, "read", lambda _: {"spool_directory": str(tmp_path)})
    monkeypatch.setattr(requeue_worker, "put", full)
    monkeypatch.setattr(epilog, "wake", lambda *_, look=False: woken.append(look))
    assert epilog.main() == 0
    assert (woken, [*tmp_path.iterdir()]) == ([True], [])


def test_worker_that_cannot_work(tmp_path: Path) -> None:
    """If Slurm's commands are missing for long, the worker ends. The entry stays, and the hook exits with 0."""
    requeue_worker.put(tmp_path, ENDED)
    argv = [
        sys.executable,
        "-c",
        WAKE.replace("epilog.wake", "requeue_worker.MISSING_S = -1\nepilog.wake"),
        str(tmp_path),
        "/nowhere",
    ]
    result = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "the hook ends\n", "")
    until((tmp_path / "lock").exists)
    with (tmp_path / "lock").open() as lock:
        until(lambda: _locked(lock.fileno()))
    assert list(requeue_worker.entries(tmp_path)) == [ENDED]
