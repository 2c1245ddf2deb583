"""Hooks after a program, and signals that come while they run."""

import os
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.fake_slurm import FakeSlurm
from tests.unit.supervisor.plans import plan
from tests.unit.supervisor.supervised import JOB, RUNNING, supervisor

# The step of the hooks: the signal of --signal=B:USR1@60 comes meanwhile.
STEP = '*" job prestart "*) kill -USR1 {pid}; sleep 0.5 ;;\n'


@pytest.mark.parametrize("code", [0, 5])
def test_a_signal_to_save_while_the_hooks_after_the_program_run(srun: Path, code: int) -> None:
    """The program has ended before: it did not run into its time limit, and its exit code is the job's."""
    script = (srun / "srun").read_text()
    (srun / "srun").write_text(script.replace('*) echo "$*"', f'{STEP.format(pid=os.getpid())}*) echo "$*"'))
    (srun / "work/a.sh").touch()
    soon = RUNNING._replace(restarts=0, end_time=datetime.fromtimestamp(time.time() + 60, UTC))
    door = FakeSlurm(soon)
    door.known_jobs[JOB] = soon
    run = supervisor(srun, door, plan(("sh", "-c", f"exit {code}"), after=(f"{srun}/work/a.sh",), grace_s=600.0))
    with run.launcher:
        action = run.supervise()
    assert (action.kind, action.code) == (("fail", 5) if code else ("finish", 0))
    assert "time limit" not in action.reason


def test_a_program_that_fails_at_once_after_the_signal_to_save(srun: Path) -> None:
    """It ran into its time limit. The hooks after it do not run, and its exit code is the job's."""
    (srun / "work/a.sh").touch()
    soon = RUNNING._replace(restarts=0, end_time=datetime.fromtimestamp(time.time() + 60, UTC))
    door = FakeSlurm(soon)
    door.known_jobs[JOB] = soon
    command = ("sh", "-c", f"kill -USR1 {os.getpid()}; exit 5")
    run = supervisor(srun, door, plan(command, after=(f"{srun}/work/a.sh",), grace_s=600.0))
    with run.launcher:
        action = run.supervise()
    assert (action.kind, action.code) == ("fail", 5)
    assert "ran into its time limit" in action.reason
    assert not (srun / "launched").exists()
