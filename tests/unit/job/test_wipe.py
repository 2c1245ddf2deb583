"""The processes of a job: which are found on a node, and that none of them is left."""

import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slurm_plugin.job.wipe import of_job, wipe
from tests.guarded import Machine, until

DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(60)"
# The parent of the one that sleeps has ended, and so has its session's first process.
TWICE = "import os, time; [os.fork() and os._exit(0) or os.setsid() for _ in (1, 2)]; print(os.getpid(), flush=True)"
EXIT = {"x86_64": 60, "aarch64": 93}.get(platform.machine())  # exit(2), of one thread (asm/unistd.h)
HEADLESS = (
    "import ctypes, threading, time; threading.Thread(target=time.sleep, args=(60,)).start(); print(flush=True);"
    f" ctypes.CDLL(None).syscall({EXIT}, 0)"
)


def there(machine: Machine, *keep: int) -> set[int]:
    """The pids of its job."""
    return set(of_job(machine.job_id, str(machine.directory), keep))


def ready(process: "subprocess.Popen[bytes]") -> bytes:
    """Wait for the first line of a process, which it writes when it is what it is to be."""
    assert process.stdout
    return process.stdout.readline()


def test_what_belongs_to_the_job(machine: Machine) -> None:
    """What has Slurm's number of the job, and what was started elsewhere with what the launch was told."""
    one = machine.rank()
    other = machine.rank(SLURM_JOB_ID="", SLURM_PLUGIN_DIRECTORY=str(machine.directory))
    machine.rank(SLURM_JOB_ID="", SLURM_PLUGIN_DIRECTORY=f"{machine.directory}0")
    assert there(machine) == {one.pid, other.pid}
    assert there(machine, one.pid) == {other.pid}


def test_other_jobs_are_left_alone(machine: Machine) -> None:
    """Numbers that begin or end alike, and a job that the program submitted: it inherits all but the number."""
    for number in (f"{machine.job_id}0", f"1{machine.job_id}"):
        machine.rank(SLURM_JOB_ID=number)
    submitted = machine.rank(SLURM_JOB_ID=f"{machine.job_id + 1}", SLURM_PLUGIN_DIRECTORY=str(machine.directory))
    mine = machine.rank(SLURM_PLUGIN_DIRECTORY=str(machine.directory))
    assert there(machine) == {mine.pid}
    assert wipe(machine.job_id, str(machine.directory), (), 5.0) == 0
    assert mine.wait(5) == -signal.SIGKILL
    assert submitted.poll() is None


def test_what_is_spared(machine: Machine) -> None:
    """Guards and people's shells say so; the supervisor is kept by its pid; the one that asks is no rank either."""
    spared = machine.rank(SLURM_PLUGIN_SPARED="1")
    supervisor, rank = machine.rank(), machine.rank()
    almost = machine.rank(SLURM_PLUGIN_SPARED="10")
    assert wipe(machine.job_id, str(machine.directory), (supervisor.pid,), 5.0) == 0
    assert rank.wait(5) == almost.wait(5) == -signal.SIGKILL
    assert spared.poll() is supervisor.poll() is None


def test_the_one_that_wipes_is_not_found() -> None:
    """It may have been started inside the job."""
    code = "import os; from slurm_plugin.job.wipe import wipe; print(wipe(int(os.environ['SLURM_JOB_ID']), '/', (), 5))"
    environ = {"SLURM_JOB_ID": str(2_000_000_000 + os.getpid()), "PYTHONPATH": str(Path(__file__).parents[3])}
    assert subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, check=True).stdout == b"0\n"


def test_ranks_that_ignore_sigterm(machine: Machine) -> None:
    """And those whose parents have ended: nothing of a job waits, and nothing hides in another session."""
    deaf = machine.rank(sys.executable, "-c", DEAF)
    lost = machine.rank(sys.executable, "-c", f"{TWICE}; time.sleep(60)")
    ready(deaf)
    pid = int(ready(lost))
    lost.wait(5)
    deaf.send_signal(signal.SIGTERM)
    assert there(machine) == {deaf.pid, pid}
    assert wipe(machine.job_id, str(machine.directory), (), 5.0) == 0
    assert deaf.wait(5) == -signal.SIGKILL
    assert until(lambda: not Path(f"/proc/{pid}").exists() or "State:\tZ" in Path(f"/proc/{pid}/status").read_text())


def test_zombies_are_not_waited_for(machine: Machine) -> None:
    """They do nothing, and go when whoever started them looks."""
    rank = machine.rank()
    rank.kill()
    assert until(lambda: "State:\tZ" in Path(f"/proc/{rank.pid}/status").read_text())
    start = time.monotonic()
    assert wipe(machine.job_id, str(machine.directory), (), 30.0) == 0
    assert time.monotonic() - start < 20


@pytest.mark.skipif(EXIT is None, reason="the number of exit(2) is not known for this machine")
def test_a_process_whose_first_thread_has_ended(machine: Machine) -> None:
    """It looks like a zombie, while another of its threads still writes."""
    rank = machine.rank(sys.executable, "-c", HEADLESS)
    ready(rank)
    assert until(lambda: "State:\tZ" in Path(f"/proc/{rank.pid}/status").read_text())
    assert there(machine) == {rank.pid}
    assert wipe(machine.job_id, str(machine.directory), (), 5.0) == 0
    assert rank.wait(5) == -signal.SIGKILL


def test_processes_that_make_others(machine: Machine) -> None:
    """A launcher that starts every rank anew is ended with them, however many rounds that takes."""
    launcher = machine.rank("sh", "-c", "echo; while :; do sleep 60; done")
    ready(launcher)
    until(lambda: len(there(machine)) == 2)
    assert wipe(machine.job_id, str(machine.directory), (), 5.0) == 0
    assert there(machine) == set()


def test_a_process_that_a_look_missed(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its parent forks and ends between the list of pids and the look at it: one look that finds nothing is none."""
    rank = machine.rank()
    real, looks = os.listdir, []

    def late(path: str) -> list[str]:
        names = real(path)
        if path == "/proc":
            looks.append(path)
            if len(looks) == 1:
                names.remove(str(rank.pid))
        return names

    monkeypatch.setattr(os, "listdir", late)
    assert wipe(machine.job_id, str(machine.directory), (), 5.0) == 0
    assert rank.wait(5) == -signal.SIGKILL


def test_what_cannot_be_ended_is_counted(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that hangs in the kernel stays, whatever is sent to it; the deadline ends the waiting."""
    machine.rank()
    machine.rank()
    monkeypatch.setattr(os, "kill", lambda *_: None)
    start = time.monotonic()
    assert wipe(machine.job_id, str(machine.directory), (), 0.2) == 2
    assert 0.2 <= time.monotonic() - start < 10
