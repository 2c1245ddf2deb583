"""The controller's worker sets and restores a job's deadline and Nice."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from slurm_plugin.controller import requeue_worker
from slurm_plugin.controller.queue_limits import Policy
from slurm_plugin.controller.requeue_policy import Ended
from slurm_plugin.records.grant import NEVER, Grant, parse, written
from slurm_plugin.slurm import Queueing
from tests.fakes import FakeSlurm, node
from tests.unit.controller.serving import BAD, ENDED, Clock, given_job, serve

WAITS = Policy(queue_timeout_s=1800, nice=1000)


def test_the_wait_of_a_restart(tmp_path: Path) -> None:
    """The deadline is set with the Count, the Nice with the Start. The grant has both before."""
    requeue_worker.put(tmp_path, ENDED)
    door = FakeSlurm([given_job()], [node("n1"), BAD])
    door.queues[7] = Queueing(3600, 0, None, 5)
    began = datetime.now(UTC)
    serve(tmp_path, door, policy=WAITS)
    (_, _, count), (_, _, start) = door.changes
    assert isinstance(count, dict)
    until = datetime.fromisoformat(count["Deadline"]).replace(tzinfo=UTC)
    assert (until - began).total_seconds() - 5400 > -60
    assert (until - datetime.now(UTC)).total_seconds() - 5400 < 60
    assert (count["TimeLimit"], count["ExcNodeList"]) == ("60", "n2")
    assert "Nice" not in count
    found = parse(str(count["AdminComment"]))
    assert found is not None
    assert (found.deadline, found.own_deadline, found.nice) == (count["Deadline"], "", (5, -995))
    assert start == {"StartTime": "now", "Nice": "-995"}


def test_a_requeue_of_others_takes_back_what_ours_had_set(tmp_path: Path) -> None:
    """A stale deadline is removed while the job completes, the Nice once it is pending."""
    requeue_worker.put(tmp_path, Ended(7, 2, ("n1",)))
    given = Grant(3, 1, ("n2",), "2026-03-01T10:30:00", "n2: x", 0, nice=(5, -995))
    door = FakeSlurm([given_job(state="COMPLETING", restarts=2, admin_comment=written("", given))], [node("n1")])
    door.queues[7] = Queueing(3600, 0, datetime(2026, 3, 1, 10, 30, tzinfo=UTC), -995)

    def then(number: int) -> None:
        if number == 1:
            assert [set(change[2]) for change in door.changes] == [{"AdminComment", "Deadline"}]  # type: ignore[call-overload]
            door.queues[7] = Queueing(3600, 0, NEVER, -995)
        if number == 3:
            door.known_jobs[7] = door.known_jobs[7]._replace(state="PENDING")
        if number == 4:
            door.queues[7] = Queueing(3600, 0, NEVER, 5)

    serve(tmp_path, door, Clock(then), policy=WAITS)
    freed, unplaced = (change[2] for change in door.changes)
    assert freed == {
        "AdminComment": written("", replace(given, deadline="")),
        "Deadline": "2099-12-31T00:00:00",
    }
    assert unplaced == {"AdminComment": written("", replace(given, deadline="", nice=())), "Nice": "5"}
    assert list(requeue_worker.entries(tmp_path)) == []


def test_the_tasks_of_an_elastic_job_that_others_requeued(tmp_path: Path) -> None:
    """They are restored before the entry is removed: a refused update is tried again. The grant stays as it is."""
    requeue_worker.put(tmp_path, ENDED)
    door = FakeSlurm([given_job(admin_comment=written("", Grant(3, tasks=10)))], [node("n1"), node("n2")])
    door.refusals["update_job", 7] = 2
    serve(tmp_path, door)
    assert door.changes == [("update_job", 7, {"NumTasks": "10"})]
    assert list(requeue_worker.entries(tmp_path)) == []


def test_a_job_whose_queue_is_not_told_waits(tmp_path: Path) -> None:
    """If one of two answers is missing, nothing is counted."""
    requeue_worker.put(tmp_path, ENDED)
    door = FakeSlurm([given_job()], [node("n1"), BAD])
    door.refusals["queueing", None] = 3

    def then(number: int) -> None:
        assert bool(door.changes) is (number > 3)

    serve(tmp_path, door, Clock(then), policy=WAITS)
    assert list(requeue_worker.entries(tmp_path)) == []
