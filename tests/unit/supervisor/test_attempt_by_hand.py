"""A program that is run again by hand in a hold, and signals to it."""

import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from slurm_plugin.records import diagnoses
from slurm_plugin.supervisor.decide import Action
from tests.fake_slurm import FakeSlurm
from tests.unit.supervisor.plans import plan
from tests.unit.supervisor.supervised import JOB, RUNNING, supervisor
from tests.waiting import until

SAVES = """
import pathlib, signal, sys, time
def save(*_):
    pathlib.Path("saved").touch()
    time.sleep(0.5)
    int(sys.argv[1]) or sys.exit(0)
signal.signal(signal.SIGUSR1, save)
pathlib.Path("runs").touch()
time.sleep(3000)
time.sleep(3000)
"""


@pytest.mark.parametrize(
    ("number", "goes_on", "retries", "code"),
    [(signal.SIGUSR1, 0, 0, 0), (signal.SIGUSR1, 0, 1, 0), (signal.SIGINT, 0, 0, 0), (signal.SIGINT, 1, 0, 143)],
)
def test_a_signal_to_a_program_that_is_run_again_in_a_hold(
    srun: Path, number: signal.Signals, goes_on: int, retries: int, code: int
) -> None:
    """The program below bash saves, and bash waits for it. If the job is stopped, it is ended after its grace."""
    (srun / "work/saves.py").write_text(SAVES)
    command = f"[ -e failed ] || {{ touch failed; exit 5; }}; X=1 {sys.executable} saves.py {goes_on}; exit $?"
    door = FakeSlurm(RUNNING)
    door.known_jobs[JOB] = RUNNING
    words = ("bash", "-c", command)
    run = supervisor(srun, door, plan(words, hold_s=300, retries=retries, grace_s=1.0 if goes_on else 600.0))
    (user := os.fork()) or _run_again(srun / "work", os.getppid(), number)
    with run.launcher:
        action = run.supervise()
    os.waitpid(user, 0)
    assert (srun / "work/saved").exists()
    assert (action.kind, action.code) == ("finish", code)
    assert run.launcher.told_to_stop == (number == signal.SIGINT)


def test_a_held_job_that_is_stopped(srun: Path) -> None:
    """No program has to save: the hold is over."""
    door = FakeSlurm(RUNNING)
    door.known_jobs[JOB] = RUNNING
    run = supervisor(srun, door, plan(("false",), hold_s=300, grace_s=600.0))
    (user := os.fork()) or _run_again(srun / "work", os.getppid(), signal.SIGINT, again=False)
    with run.launcher:
        action = run.supervise()
    os.waitpid(user, 0)
    assert action == Action("fail", 1, "the program failed with exit code 1; its nodes are fine")


def test_a_rerun_whose_failure_is_not_diagnosed(srun: Path) -> None:
    """The diagnosis of the failure before it, which has the same number, is not that of this one."""
    run = supervisor(srun, FakeSlurm(RUNNING), plan(("false",)))
    run.attempts.site = {**run.attempts.site, "logs": {"diagnosis_s": 0}}
    diagnoses.write(run.files, 0, {"class": "oom", "says": "out of memory"}, "")
    with run.launcher:
        assert run._run_by_hand() == ("program", 1)
    assert diagnoses.sentences(diagnoses.read(run.files)[0]) == []


def _run_again(work: Path, pid: int, number: int, *, again: bool = True) -> None:
    """Request a rerun of the held job, and signal its supervisor when the program runs. In a child process."""
    directory = work / f".slurm_plugin/{JOB}"

    def held() -> bool:
        with suppress(OSError, ValueError):
            return str(json.loads((directory / "hold.json").read_text())["state"]) == "held"
        return False

    try:
        until(held)
        if again:
            (directory / "hold.request").write_text("rerun\n")
            until((work / "runs").exists)
        os.kill(pid, number)
    finally:
        os._exit(0)
