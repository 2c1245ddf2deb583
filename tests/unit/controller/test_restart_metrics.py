"""Restarts and the time to recover, as the worker's requests and Slurm's answers show them."""

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.controller import requeue_worker, restart_metrics
from slurm_plugin.controller.restart_metrics import CountingDoor, cause
from slurm_plugin.records import metrics
from slurm_plugin.records.grant import Grant, written
from slurm_plugin.records.metrics import RECOVERY, RESTARTS, sample
from slurm_plugin.slurm import Job
from tests.fakes import FakeSlurm, node
from tests.unit.controller.serving import BAD, ENDED, given_job, serve
from tests.waiting import HANG_S

BY_CHECK = sample(RESTARTS, kind="requeue", cause="node_check")
LATER = datetime.now(UTC) + timedelta(hours=2)
IN_PLACE = sample(RESTARTS, kind="in_place", cause="unknown")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the settings of a site with metrics."""
    for module, name in ((metrics, "WRITE_S"), (metrics, "LOCK_WAIT_S"), (restart_metrics, "LOCK_WAIT_S")):
        monkeypatch.setattr(module, name, HANG_S)
    (tmp_path / "textfile").mkdir()
    (tmp_path / "spool").mkdir()
    places = {"metrics_directory": str(tmp_path / "textfile"), "spool_directory": str(tmp_path / "spool")}
    return {**places, "prechecks": {"state": str(tmp_path / "state")}}


def count(site: dict[str, Any], name: str) -> float:
    """Return a sample of the controller's file; 0 if nothing was counted."""
    path = Path(site["metrics_directory"], "slurm_plugin_controller.prom")
    lines = path.read_text().splitlines() if path.exists() else []
    return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name} ")), 0.0)


def shown(door: FakeSlurm, **fields: object) -> Job:
    """Change what Slurm shows of the job."""
    door.known_jobs[7] = door.known_jobs[7]._replace(**fields)
    return door.known_jobs[7]


def test_a_restart_from_its_end_to_its_start(site: dict[str, Any]) -> None:
    """The worker's Count is one restart, the next start is one recovery, also to a later worker."""
    fake = FakeSlurm([given_job(state="COMPLETING", restarts=0)], [node("n1"), BAD])
    spool, door = Path(site["spool_directory"]), CountingDoor(fake, site)
    door.jobs()  # the run ends
    shown(fake, state="PENDING", restarts=1)
    requeue_worker.put(spool, ENDED)
    serve(spool, door)  # type: ignore[arg-type]
    assert count(site, BY_CHECK) == 1
    assert count(site, f"{RECOVERY}_count") == 0
    shown(fake, state="RUNNING", start_time=datetime.now(UTC) + timedelta(seconds=40))
    for each in (CountingDoor(fake, site), door):
        each.jobs()
    assert count(site, f"{RECOVERY}_count") == 1
    assert count(site, f"{RECOVERY}_sum") == pytest.approx(40, abs=30)
    assert count(site, BY_CHECK) == 1


def test_what_is_no_recovery(site: dict[str, Any]) -> None:
    """An expected start, a start before the end, a job that was requeued again or that Slurm has forgotten."""
    fake = FakeSlurm([given_job()])
    for after in (
        {"state": "PENDING", "start_time": datetime.now(UTC)},
        {"state": "CANCELLED", "start_time": datetime.now(UTC) - timedelta(hours=1)},
        {"state": "DEADLINE", "start_time": LATER, "end_time": LATER},  # it never started again
        {"state": "RUNNING", "restarts": 2, "start_time": datetime.now(UTC)},
    ):
        fake.known_jobs[7] = given_job()
        door = CountingDoor(fake, site)
        door.jobs()
        door.update_job(7, AdminComment=written("", Grant(3, 1, counted=0, last="n2: gpu-check: x")))
        shown(fake, **after)
        door.jobs([7])
    fake.known_jobs.clear()
    door.jobs()
    assert restart_metrics._load(Path(site["spool_directory"]))["since"] == {}
    assert (count(site, BY_CHECK), count(site, f"{RECOVERY}_count")) == (4, 0)


def test_other_changes_of_a_grant(site: dict[str, Any]) -> None:
    """A grant without one more requeue is no restart: the worker has restored the job's own Nice, or cancels it."""
    counted = Grant(3, 1, counted=0, last="n2: gpu-check: x")
    door = CountingDoor(FakeSlurm([given_job(admin_comment=written("", counted))]), site)
    door.jobs()
    for grant in (counted, replace(counted, last="no restart left after x")):
        door.update_job(7, AdminComment=written("", grant), Nice="0")
    assert count(site, BY_CHECK) == 0


def test_restarts_in_place(site: dict[str, Any]) -> None:
    """They are counted once, and at most as many as are granted: the number is user text."""
    fake = FakeSlurm([given_job(state="RUNNING", comment="[sp1;retries=3;ib=auto;again=1]")])
    for again in ("again=1", "again=1", "again=2", "again=999", "again=x"):
        shown(fake, comment=f"[sp1;retries=3;ib=auto;{again}]")
        CountingDoor(fake, site).jobs()
    assert count(site, IN_PLACE) == 3
    shown(fake, admin_comment="")
    CountingDoor(fake, site).jobs()
    assert count(site, IN_PLACE) == 3


def test_files_of_jobs_that_are_gone(site: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is kept about them, and the number of jobs is bounded."""
    jobs = [given_job(number, state="RUNNING", comment="[sp1;retries=3;ib=auto;again=1]") for number in range(9)]
    monkeypatch.setattr(restart_metrics, "MOST_JOBS", 4)
    fake = FakeSlurm(jobs)
    CountingDoor(fake, site).jobs()
    assert list(restart_metrics._load(Path(site["spool_directory"]))["again"]) == ["0", "1", "2", "3"]
    fake.known_jobs.clear()
    CountingDoor(fake, site).jobs()
    assert restart_metrics._load(Path(site["spool_directory"]))["again"] == {}


@pytest.mark.parametrize("text", ["{", "[]", '{"since": {"a": [1, 2]}, "again": {}}', '{"since": {"7": [1]}}'])
def test_a_file_that_cannot_be_read(site: dict[str, Any], text: str) -> None:
    """It is as if it were empty; the worker goes on."""
    spool = Path(site["spool_directory"])
    (spool / restart_metrics.SEEN).write_text(text)
    requeue_worker.put(spool, ENDED)
    serve(spool, CountingDoor(FakeSlurm([given_job()], [node("n1"), BAD]), site))  # type: ignore[arg-type]
    assert count(site, BY_CHECK) == 1
    assert list(requeue_worker.entries(spool)) == []


def test_a_spool_that_cannot_be_written(site: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The restart is not counted, and the log says so. The job restarts."""
    said = []
    monkeypatch.setattr(restart_metrics.syslog, "syslog", lambda _, line: said.append(line))
    site["spool_directory"] += "/gone"
    fake = FakeSlurm([given_job()])
    door = CountingDoor(fake, site)
    door.jobs()
    door.update_job(7, AdminComment=written("", Grant(3, 1, counted=0, last="x")))
    assert len(fake.changes) == 1
    assert said[0].startswith("a restart is not counted: ")


def test_watching_for_a_start(site: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker asks again while a job that may start has not started, and ends soon if it does not start."""
    fake = FakeSlurm([given_job()])
    door, sleeps = CountingDoor(fake, site), list[float]()
    monkeypatch.setattr(restart_metrics, "WATCH_S", 3600.0)

    def sleep(seconds: float) -> None:
        sleeps.extend([seconds] * (seconds == restart_metrics.WATCH_EVERY_S))
        if len(sleeps) == 3:
            shown(fake, state="RUNNING", start_time=datetime.now(UTC))

    monkeypatch.setattr(time, "sleep", sleep)
    door.watch()
    assert sleeps == []  # no job may start
    door.jobs()
    door.update_job(7, AdminComment=written("", Grant(3, 1, counted=0, last="x")))
    door.update_job(7, StartTime="now")
    door.watch()
    assert (len(sleeps), count(site, f"{RECOVERY}_count")) == (3, 1)


@pytest.mark.parametrize(
    ("last", "found"),
    [
        ("n2: gpu-check: 3 of 4 GPUs; disk-size shm: x", "node_check"),
        ("n1: failed this job's own check; n2: failed this job's own check", "own_check"),
        ("n1: failed this job's own check; n2: gpu-check: x", "node_check"),
        ("n1: the job was slow there; n2: the job was slow there", "own_check"),
        ("n2: the node went down", "node_down"),
        ("a node of it: the node went down; n2: failed this job's own check", "node_down"),
        ("the job asked for it", "program"),
    ],
)
def test_causes(last: str, found: str) -> None:
    """As the worker words them; Slurm's own view of a node comes before the job's."""
    assert cause(last) == found
