"""The controller's worker and a job's place in the queue: its wait and its Nice, set and taken back."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from slurm_plugin.after_run import Ended
from slurm_plugin.grant import Grant, parse, written
from slurm_plugin.hooks import spool
from slurm_plugin.queueing import NEVER, Policy
from slurm_plugin.slurm import Queueing
from tests.fakes import FakeSlurm, node
from tests.unit.hooks.serving import BAD, ENDED, Clock, given_job, serve

WAITS = Policy(queue_timeout_s=1800, nice=1000)


def test_the_wait_of_a_restart(tmp_path: Path) -> None:
    """Its deadline comes with the count, its Nice with the start; both are remembered before they are set."""
    spool.put(tmp_path, ENDED)
    door = FakeSlurm([given_job()], [node("n1"), BAD])
    door.queues[7] = Queueing(3600, 0, None, 5)
    serve(tmp_path, door, policy=WAITS)
    (_, _, count), (_, _, start) = door.changes
    assert isinstance(count, dict)
    until = datetime.fromisoformat(count["Deadline"]).replace(tzinfo=UTC)
    assert abs((until - datetime.now(UTC)).total_seconds() - 5400) < 60
    assert (count["TimeLimit"], count["ExcNodeList"]) == ("60", "n2")
    assert "Nice" not in count
    found = parse(str(count["AdminComment"]))
    assert found is not None
    assert (found.deadline, found.own_deadline, found.nice) == (count["Deadline"], "", (5, -995))
    assert start == {"StartTime": "now", "Nice": "-995"}


def test_a_requeue_of_others_takes_back_what_ours_had_set(tmp_path: Path) -> None:
    """A stale deadline of ours goes while the job is still completing, its Nice once it is pending; then nothing."""
    spool.put(tmp_path, Ended(7, 2, ("n1",)))
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
    assert list(spool.entries(tmp_path)) == []


def test_a_job_whose_queue_is_not_told_waits(tmp_path: Path) -> None:
    """Slurm has answered one question of two: nothing is counted before it has answered both."""
    spool.put(tmp_path, ENDED)
    door = FakeSlurm([given_job()], [node("n1"), BAD])
    door.refusals["queueing", None] = 3

    def then(number: int) -> None:
        assert bool(door.changes) is (number > 3)

    serve(tmp_path, door, Clock(then), policy=WAITS)
    assert list(spool.entries(tmp_path)) == []
