"""The restarts of a job where no admin has installed slurm_plugin: none without a record, none above the spec's."""

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.records.grant import Grant, written
from slurm_plugin.supervisor import job_end
from slurm_plugin.supervisor.decide import Action
from slurm_plugin.supervisor.requeue import by_owner
from slurm_plugin.supervisor.run import from_environment
from tests.fakes import FakeSlurm, job
from tests.unit.supervisor.plans import plan
from tests.unit.supervisor.supervised import AGAIN, JOB, RUNNING, attempted, supervisor

COMMENT = "[sp1;retries=2;ib=auto]"
AGAIN_LINE, REQUEUE_LINE = {"restart": 0, "action": "again"}, {"restart": 0, "action": "requeue"}
CLOSED = ("update_job", JOB, {"Requeue": "0"})


@pytest.mark.parametrize(
    ("restarts", "lines", "spent", "closed"),
    [
        (0, [], False, False),
        (0, [AGAIN_LINE], False, False),
        (0, [AGAIN_LINE] * 2, False, True),
        (1, [AGAIN_LINE, REQUEUE_LINE], False, True),
        (1, [AGAIN_LINE] * 2, True, True),  # Slurm requeued it after the last restart
    ],
)
def test_the_budget(restarts: int, lines: Sequence[Mapping[str, Any]], *, spent: bool, closed: bool) -> None:
    """Of two restarts. When the last one is used, Slurm may requeue the job no more."""
    door = FakeSlurm([job(JOB, comment=COMMENT, restarts=restarts)])
    said = job_end.spent(door, door.job(JOB), plan("true", retries=2), lines)
    assert said == (by_owner.SPENT if spent else "")
    assert door.changes == ([CLOSED] if closed else [])


@pytest.fixture
def blocks_sigterm() -> Iterator[None]:
    """Restore the signals that a requeue blocks until its process ends."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    yield
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


@pytest.mark.usefixtures("blocks_sigterm")
@pytest.mark.parametrize("last", [{}, {"n": 0, "action": "again"}, {"n": 1, "action": "requeue"}])
def test_a_requeue_that_could_not_be_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], last: Mapping[str, Any]
) -> None:
    """Its restart would not count, so the job is not requeued."""
    door = FakeSlurm([job(JOB, state="RUNNING", comment=COMMENT)])
    run = from_environment({"SLURM_JOB_ID": str(JOB), "SLURM_JOB_NODELIST": "n1"}, 1)
    more = {"again": 0, "lost": (), "lines": [last] if last else [], "files": tmp_path}
    job_end.requeue(door, run, plan("true", retries=2), Action("requeue", 1, "why"), **more)
    assert door.changes == []
    assert f"the job is not requeued: {tmp_path}/attempts.jsonl could not be written" in capsys.readouterr().out


def test_a_run_above_the_budget(srun: Path) -> None:
    """Whoever requeued the job: its program does not start."""
    door = FakeSlurm([RUNNING._replace(restarts=2, comment=COMMENT)])
    found = attempted(srun, door, plan("true", retries=1), environ=AGAIN)
    assert (found.kind, found.reason) == ("fail", by_owner.SPENT)
    assert not (srun / "launched").exists()


def test_the_signal_of_a_near_time_limit_before_a_requeue(srun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not end the supervisor, which may have to wait minutes until Slurm has noticed that a node is gone."""
    door = FakeSlurm([RUNNING._replace(restarts=0, comment=COMMENT, admin_comment=written("", Grant(2)), nodes="n1")])
    run = supervisor(srun, door, plan("true", retries=2, grace_s=60.0))
    run.lost = frozenset({"n1"})
    monkeypatch.setattr(job_end, "KILL_WAIT_S", 0.0)
    monkeypatch.setattr(job_end.queries, "until_gone", lambda *_, **__: os.kill(os.getpid(), signal.SIGUSR1))
    if not (pid := os.fork()):
        try:
            with run.launcher:
                pass
            run.act(Action("requeue", 1, "n1 does not answer", leave_out=("n1",)))
        finally:
            os._exit(door.job(JOB).restarts != 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
