"""The processes of a job: which ones are found on a node. None of them is left."""

import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slurm_plugin.supervisor.guard.processes import of_job, wipe
from tests.guarded import AGES, Machine, gone, state
from tests.waiting import HANG_S, until

DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(3000)"
# The sleeping process's parent and its session leader have ended.
TWICE = "import os, time; [os.fork() and os._exit(0) or os.setsid() for _ in (1, 2)]; print(os.getpid(), flush=True)"
EXIT = {"x86_64": 60, "aarch64": 93}.get(platform.machine())  # exit(2), of one thread (asm/unistd.h)
HEADLESS = (
    "import ctypes, threading, time; threading.Thread(target=time.sleep, args=(3000,)).start(); print(flush=True);"
    f" ctypes.CDLL(None).syscall({EXIT}, 0)"
)


def there(machine: Machine, *keep: int) -> set[int]:
    """Return the pids of its job."""
    return set(of_job(machine.job_id, str(machine.directory), keep))


def ready(process: "subprocess.Popen[bytes]") -> bytes:
    """Wait for the first line of a process, which it writes when it is set up."""
    assert process.stdout
    return process.stdout.readline()


def test_what_belongs_to_the_job(machine: Machine) -> None:
    """Processes with Slurm's job id, and those started elsewhere with the launch's variables."""
    one = machine.rank()
    other = machine.rank(SLURM_JOB_ID="", SLURM_PLUGIN_DIRECTORY=str(machine.directory))
    machine.rank(SLURM_JOB_ID="", SLURM_PLUGIN_DIRECTORY=f"{machine.directory}0")
    assert there(machine) == {one.pid, other.pid}
    assert there(machine, one.pid) == {other.pid}


def test_other_jobs_are_left_alone(machine: Machine) -> None:
    """Ids with the same beginning or end, and a job that the program submitted: it inherits all but the id."""
    for number in (f"{machine.job_id}0", f"1{machine.job_id}"):
        machine.rank(SLURM_JOB_ID=number)
    submitted = machine.rank(SLURM_JOB_ID=f"{machine.job_id + 1}", SLURM_PLUGIN_DIRECTORY=str(machine.directory))
    mine = machine.rank(SLURM_PLUGIN_DIRECTORY=str(machine.directory))
    assert there(machine) == {mine.pid}
    assert wipe(machine.job_id, str(machine.directory), (), AGES) == 0
    assert mine.wait(HANG_S) == -signal.SIGKILL
    assert submitted.poll() is None


def test_what_is_spared(machine: Machine) -> None:
    """Guards and users' shells have a variable, the supervisor is excepted by its pid, and so is the caller."""
    spared = machine.rank(SLURM_PLUGIN_SPARED="1")
    supervisor, rank = machine.rank(), machine.rank()
    almost = machine.rank(SLURM_PLUGIN_SPARED="10")
    assert wipe(machine.job_id, str(machine.directory), (supervisor.pid,), AGES) == 0
    assert rank.wait(HANG_S) == almost.wait(HANG_S) == -signal.SIGKILL
    assert spared.poll() is supervisor.poll() is None


def test_the_one_that_wipes_is_not_found() -> None:
    """It may have been started inside the job."""
    code = (
        "import os; from slurm_plugin.supervisor.guard.processes import wipe; "
        "print(wipe(int(os.environ['SLURM_JOB_ID']), '/', (), 1e6))"
    )
    environ = {"SLURM_JOB_ID": str(2_000_000_000 + os.getpid()), "PYTHONPATH": str(Path(__file__).parents[4])}
    assert subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, check=True).stdout == b"0\n"


def test_ranks_that_ignore_sigterm(machine: Machine) -> None:
    """Also orphans: no process of a job gets more time, or is missed in another session."""
    deaf = machine.rank(sys.executable, "-c", DEAF)
    lost = machine.rank(sys.executable, "-c", f"{TWICE}; time.sleep(3000)")
    ready(deaf)
    pid = int(ready(lost))
    lost.wait(HANG_S)
    deaf.send_signal(signal.SIGTERM)
    assert there(machine) == {deaf.pid, pid}
    assert wipe(machine.job_id, str(machine.directory), (), AGES) == 0
    assert deaf.wait(HANG_S) == -signal.SIGKILL
    until(lambda: gone(pid))


def test_zombies_are_not_waited_for(machine: Machine) -> None:
    """They do nothing, and disappear when their parent reaps them."""
    rank = machine.rank()
    rank.kill()
    until(lambda: state(rank.pid) == "Z")
    assert wipe(machine.job_id, str(machine.directory), (), AGES) == 0


@pytest.mark.skipif(EXIT is None, reason="the number of exit(2) is not known for this machine")
def test_a_process_whose_first_thread_has_ended(machine: Machine) -> None:
    """It looks like a zombie, but another thread still writes."""
    rank = machine.rank(sys.executable, "-c", HEADLESS)
    ready(rank)
    until(lambda: state(rank.pid) == "Z")
    assert there(machine) == {rank.pid}
    assert wipe(machine.job_id, str(machine.directory), (), AGES) == 0
    assert rank.wait(HANG_S) == -signal.SIGKILL


def test_processes_that_make_others(machine: Machine) -> None:
    """A launcher that restarts every rank is ended with them, in several rounds if necessary."""
    launcher = machine.rank("sh", "-c", "echo; while :; do sleep 3000; done")
    ready(launcher)
    until(lambda: len(there(machine)) == 2)
    assert wipe(machine.job_id, str(machine.directory), (), AGES) == 0
    assert there(machine) == set()


def test_a_process_that_a_look_missed(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its parent forks and ends between the listing of pids and the check: one empty result is not enough."""
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
    assert wipe(machine.job_id, str(machine.directory), (), AGES) == 0
    assert rank.wait(HANG_S) == -signal.SIGKILL


def test_what_cannot_be_ended_is_counted(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that hangs in the kernel stays. The deadline ends the wait."""
    machine.rank()
    machine.rank()
    for name in ("kill", "killpg"):
        monkeypatch.setattr(os, name, lambda *_: None)
    start = time.monotonic()
    assert wipe(machine.job_id, str(machine.directory), (), 0.2) == 2
    assert time.monotonic() - start >= 0.2
