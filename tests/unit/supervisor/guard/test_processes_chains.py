"""Processes that constantly fork and exit: the guard ends or stops all of them, or reports that some are left."""

import signal
import sys
import time
from pathlib import Path

import pytest

from slurm_plugin.supervisor.guard import processes
from tests.guarded import AGES, Machine, gone
from tests.waiting import until

# Each generation forks the next one, notes its number and ends after its lifetime.
CHAIN = """
import os, sys, time
life, session = float(sys.argv[1]), len(sys.argv) > 3
while not os.path.exists(sys.argv[2] + ".end"):
    time.sleep(life)
    if os.fork():
        os._exit(0)
    if session:
        os.setsid()
    with open(sys.argv[2], "w") as file:
        file.write(str(os.getpid()))
"""
# The same with a shell, which starts another program each time.
SHELL = 'echo $$ >"$1"; sleep "$2"; sh -c "$3" sh "$1" "$2" "$3" &'
LIVES = pytest.mark.parametrize("life", ["0.005", "0.001", "0"])


def chain(machine: Machine, note: Path, life: str, *options: str) -> None:
    """Start a chain, and wait for its first note."""
    machine.rank(sys.executable, "-S", "-c", CHAIN, life, str(note), *options)
    until(lambda: note.exists() and note.read_text())


def runs(note: Path) -> bool:
    """Return whether another generation appears within twenty lifetimes."""
    note.unlink(missing_ok=True)
    end = time.monotonic() + 0.2
    while time.monotonic() < end and not note.exists():
        time.sleep(0.005)
    return note.exists()


@LIVES
def test_a_chain_is_ended(machine: Machine, tmp_path: Path, life: str) -> None:
    """However short its generations live, in one process group."""
    note = tmp_path / "note"
    chain(machine, note, life)
    assert processes.wipe(machine.job_id, str(machine.directory), (), AGES) == 0
    assert not runs(note)


def test_a_chain_of_programs(machine: Machine, tmp_path: Path) -> None:
    """A process has no environment for a moment while it starts another program."""
    note = tmp_path / "note"
    machine.rank("sh", "-c", SHELL, "sh", str(note), "0.005", SHELL)
    until(note.exists)
    assert processes.wipe(machine.job_id, str(machine.directory), (), AGES) == 0
    assert not runs(note)


def test_a_chain_of_sessions(machine: Machine, tmp_path: Path) -> None:
    """No process group contains it. If it is not ended by the deadline, it is reported as left."""
    note = tmp_path / "note"
    chain(machine, note, "0", "session")
    try:
        assert processes.wipe(machine.job_id, str(machine.directory), (), 1.0) or not runs(note)
    finally:
        (tmp_path / "note.end").touch()


@LIVES
def test_a_chain_is_stopped(machine: Machine, tmp_path: Path, life: str) -> None:
    """As when its node's lease ends: it writes nothing until it may continue."""
    note = tmp_path / "note"
    chain(machine, note, life)
    assert processes.freeze(machine.job_id, str(machine.directory), (), AGES) == 0
    assert not runs(note)
    processes.signal_all(machine.job_id, str(machine.directory), (), signal.SIGCONT)
    until(note.exists)
    assert processes.wipe(machine.job_id, str(machine.directory), (), AGES) == 0


def test_processes_of_others_that_come_and_go(machine: Machine, tmp_path: Path) -> None:
    """Another job of the user may fork as it likes: this job's processes are reported gone, the other's continue."""
    note = tmp_path / "note"
    other = machine.rank(sys.executable, "-S", "-c", CHAIN, "0.001", str(note), SLURM_JOB_ID=str(machine.job_id + 1))
    try:
        until(lambda: note.exists() and note.read_text())
        rank = machine.rank()
        assert processes.wipe(machine.job_id, str(machine.directory), (), AGES) == 0
        assert gone(rank.pid)
        note.unlink()
        until(note.exists)
    finally:
        processes.wipe(machine.job_id + 1, str(machine.directory), (), AGES)
        other.wait()


V1 = b"12:devices:/slurm/uid_1000/job_7/step_batch/task_0\n4:memory:/slurm/uid_1000/job_7/step_batch\n3:cpu:/\n"
V2 = b"0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0\n"
SLUID = b"0::/system.slice/n1_slurmstepd.scope/s715M82HNH0K00/step_batch/user/task_special\n"  # 26.05.5's


@pytest.mark.parametrize("own", [V1, V2, SLUID], ids=["version 1", "version 2", "26.05"])
def test_the_job_s_own_cgroup(own: bytes) -> None:
    """It contains every step of this job, whatever Slurm's name for the job, but no other job and no login."""
    steps = processes.steps_of(own)
    name = b"s715M82HNH0K00" if own == SLUID else b"job_7"
    assert processes.is_in(own, steps)
    assert processes.is_in(own.replace(b"/step_batch", b"/step_1"), steps)
    assert not processes.is_in(own.replace(name, name + b"1"), steps)
    assert not processes.is_in(own.replace(b"/step_batch", b"/step_0").replace(b"/step_0", b"/step_extern"), steps)
    assert not processes.is_in(b"0::/user.slice/user-1000.slice/session-3.scope\n", steps)


def test_without_a_cgroup_plugin() -> None:
    """Cgroups give no information."""
    steps = processes.steps_of(b"0::/system.slice/slurmd.service\n3:cpu:/\n")
    assert steps == set()
    assert not processes.is_in(b"0::/system.slice/slurmd.service\n", steps)
