"""A run records earlier runs whose scripts could not."""

import json
import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from slurm_plugin.records import job_directory
from slurm_plugin.records.grant import Grant, Run, written
from slurm_plugin.supervisor import attempt_record
from slurm_plugin.supervisor.supervise import Supervisor
from tests import fakes
from tests.fake_slurm import FakeSlurm
from tests.unit.supervisor.plans import plan
from tests.unit.supervisor.supervised import JOB, RUNNING, supervisor

TOLD = Grant(3, 2, ("n2",), last="n2: gpu-check: x", counted=1).with_run(
    Run(0, "n[1-2]", "2026-03-01T09:20:00", "n1: x")
)
TOLD = TOLD.with_run(Run(1, "n2", "2026-03-01T09:30:00", "n2: gpu-check: x"))
AGAIN = RUNNING._replace(restarts=2, admin_comment=written("", TOLD))


def of_run(srun: Path, restart: int, *, job: object = AGAIN) -> Supervisor:
    """Return the supervisor of a run."""
    environ = {"SLURM_RESTART_COUNT": str(restart)}
    return supervisor(srun, FakeSlurm(job), plan("true", retries=3), environ=environ)  # type: ignore[arg-type]


def lines(srun: Path) -> list[dict[str, object]]:
    text = (srun / f"work/.slurm_plugin/{JOB}/attempts.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def test_runs_that_their_prologs_stopped(srun: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each is logged as the end of an attempt before this one begins, and recorded once."""
    assert of_run(srun, 2).supervise().kind == "finish"
    said = capsys.readouterr().out
    first = "[slurm_plugin] error,exiting: attempt 0: n1: x; the job runs again\n"
    second = "[slurm_plugin] error,exiting: attempt 1: n2: gpu-check: x; the job runs again\n"
    assert f"[slurm_plugin] n2 gpu-check: failed: x\n{first}{second}[slurm_plugin] attempt 2 of job" in said
    assert [(line["n"], line["restart"], line["action"]) for line in lines(srun)] == [
        (0, 0, "requeue"),
        (1, 1, "requeue"),
        (2, 2, "finish"),
    ]
    again = of_run(srun, 3, job=AGAIN._replace(restarts=3))
    assert again._opening() == "the program ended with exit code 0"  # the third run was requeued for another cause
    assert len(lines(srun)) == 3
    assert attempt_record.in_a_row(again._history()) == 0


def test_they_are_no_failures_in_a_row(srun: Path) -> None:
    """Only the program's attempts count. Such runs between them do not reset the count."""
    for line in [{"phase": "program"}, {"phase": None}, {"phase": "program"}]:
        job_directory.record(job_directory.directory(srun / "work", JOB), {"n": 0, "action": "requeue", **line})
    assert attempt_record.in_a_row(of_run(srun, 2)._history()) == 2


def test_what_a_run_has_saved() -> None:
    """An attempt of another run counts for nothing."""
    lines = [{"restart": 0, "progress": True}, {"restart": 1, "progress": None}, {"restart": 2, "progress": True}, {}]
    assert [attempt_record.has_saved(lines, restart) for restart in range(4)] == [True, False, True, False]


def test_numbers(srun: Path) -> None:
    """A run without a script also has a number, after the attempts of the earlier run."""
    path = job_directory.directory(srun / "work", JOB) / "turn"
    for text, restart, number in [("0 0\n", 1, 1), ("0 2\n", 1, 3), ("0 2\n", 2, 4), ("1 1\n", 1, 1), ("7 9\n", 2, 2)]:
        path.write_text(text)
        assert of_run(srun, restart).run.attempt == number, (text, restart)


def test_a_full_disk(srun: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Only the record is lost."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(job_directory, "record", full)
    assert of_run(srun, 2).supervise().kind == "finish"
    said = capsys.readouterr().out
    assert all(f"could not record attempt {number}: [Errno 28]" in said for number in range(3))


def test_the_words_of_the_last_restart() -> None:
    """One line for each node. A cause without a node stays as it is."""
    cases = [
        ("n1: gpu-check: x; disk-size shm: y; n2: the node went down",
         ["n1 gpu-check: failed: x", "n1 disk-size shm: failed: y", "n2 the node went down"]),
        ("a node of it: the node went down; n2: gpu-check: x",
         ["a node of it: the node went down", "n2 gpu-check: failed: x"]),
        ("the job asked for it", ["the job asked for it"]),
        ("", []),
    ]  # fmt: skip
    for last, expected in cases:
        assert attempt_record.lines_of_reason(replace(TOLD, excluded=("n1", "n2"), last=last)) == expected


def test_an_old_job_with_the_same_number(srun: Path) -> None:
    """Of the time before slurmctld lost its state: its runs and restarts are not those of the new job."""
    old, given = job_directory.directory(srun / "work", JOB), plan(("false",), retries=2, no_kill=True)
    for name, text in [("turn", "1 1 ours\n"), ("attempts.jsonl", 2 * '{"n": 1, "restart": 1, "action": "again"}\n')]:
        (old / name).write_text(text)
        os.utime(old / name, (1000, 1000))
    (old / "job.yaml").write_text("name: new\n")
    known = RUNNING._replace(comment="[sp1;retries=2]", restarts=0, submit_time=datetime.now(UTC) - timedelta(days=1))
    run = supervisor(srun, fakes.FakeSlurm([known]), given, environ={"SLURM_CLUSTER_NAME": "ours"})
    with run.launcher:
        action = run.supervise()
    assert action.reason == "the program failed with exit code 1; its nodes are fine"
    assert [line["n"] for line in run._history()] == [0]
    assert "again=" not in run.door.job(JOB).comment
    assert (old / "job.yaml").exists()


def test_two_commands_in_one_allocation(srun: Path) -> None:
    """The first has recorded its attempts after the job's submission: they stay."""
    own = job_directory.directory(srun / "work", JOB)
    job_directory.record(own, {"n": 0, "restart": 0, "action": "fail"})
    known = RUNNING._replace(restarts=0, submit_time=datetime.now(UTC) - timedelta(days=1))
    attempt_record.forget_another(own, "", lambda: known)
    assert job_directory.attempts(own) == [{"n": 0, "restart": 0, "action": "fail"}]
