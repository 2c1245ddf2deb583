"""Ends of runs without a spool entry, because the hook was killed or the disk was full."""

from dataclasses import replace
from pathlib import Path

import pytest

from slurm_plugin.controller import worker
from slurm_plugin.controller.after_run import Ended, unspooled_ends
from slurm_plugin.records.grant import Grant, parse, written
from slurm_plugin.slurm import Job, Node
from tests.fakes import FakeSlurm, node
from tests.unit.controller.serving import BAD, ENDED, Clock, given_job, serve

MARKED = "[sp1;retries=3;had=0.2;run=0;x=1]"


def _end(job: Job, *nodes: Node) -> list[Ended]:
    return unspooled_ends([job], lambda: {each.name: each for each in nodes})


def test_what_speaks_for_us() -> None:
    """A drain that names the job, or the supervisor's mark. Of a COMPLETING job Slurm still has the nodes."""
    named = Ended(7, 1, ("n2",), whole=False)
    assert _end(given_job(), BAD, node("n1")) == [named]
    assert _end(given_job(state="RUNNING"), BAD) == [named]
    assert _end(given_job(comment=MARKED), node("n1")) == [Ended(7, 1, (), whole=False)]
    assert _end(given_job(state="COMPLETING", nodes="n[1-2]"), BAD) == [ENDED]


@pytest.mark.parametrize(
    "job",
    [
        given_job(restarts=0),
        given_job(admin_comment=""),
        given_job(admin_comment=written("", Grant(3, 1, counted=0))),
        given_job(admin_comment=written("", Grant(3, 1, ("n2",), counted=0)), restarts=2),
        given_job(state="COMPLETED"),
        given_job(state="UNKNOWN"),
        given_job(reason="JobHeldUser"),
        given_job(8),
        given_job(8, comment="[sp1;retries=3;had=0.2]"),
    ],
)
def test_what_does_not(job: Job) -> None:
    """A first run, a job without a grant, a counted run, a node of an earlier run, another's requeue."""
    assert _end(job, BAD, node("n1")) == []


def test_another_job_is_missed(tmp_path: Path) -> None:
    """A worker with another entry finds it before it ends, counts it, excludes the node and starts the job."""
    worker.put(tmp_path, Ended(9, 1, ("n3",)))
    door = FakeSlurm([given_job(), given_job(9)], [node("n1"), BAD, node("n3", "DOWN")])
    serve(tmp_path, door)
    assert [change[1] for change in door.changes] == [9, 9, 7, 7]
    assert door.changes[2][2]["ExcNodeList"] == "n2"  # type: ignore[index]
    given = parse(door.known_jobs[7].admin_comment)
    assert given is not None
    assert replace(given, runs=()) == Grant(3, 1, ("n2",), "", "n2: gpu-check: x", 0)
    assert [run[:2] for run in given.runs] == [(0, "")]  # not all of its nodes are known


def test_nothing_could_be_spooled(tmp_path: Path) -> None:
    """The hook starts a worker with `look`, which handles the job as if there were an entry."""
    door = FakeSlurm([given_job(state="COMPLETING", nodes="n[1-2]")], [node("n1"), BAD])

    def then(number: int) -> None:
        if number == 3:
            door.known_jobs[7] = given_job()

    clock = Clock(then)
    worker.serve(tmp_path, door, look=True, clock=clock)
    assert [sorted(change[2]) for change in door.changes] == [["AdminComment", "ExcNodeList"], ["StartTime"]]  # type: ignore[call-overload]


def test_a_spool_without_room_for_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker locks the directory itself."""
    (tmp_path / "lock").mkdir()  # cannot be opened for writing
    door = FakeSlurm([given_job()], [node("n1"), BAD])
    clock = Clock()
    worker.serve(tmp_path, door, look=True, clock=clock)
    assert len(door.changes) == 2


def test_one_that_cannot_be_dealt_with_is_looked_at_once(tmp_path: Path) -> None:
    """The worker does not find the same end again after a Drop: it ends."""
    used_up = given_job(reason="JobHeldUser", admin_comment=written("", Grant(1, 1)))
    worker.put(tmp_path, ENDED)
    serve(tmp_path, FakeSlurm([used_up], [BAD]))
    assert list(worker.entries(tmp_path)) == []


def test_held_and_released(tmp_path: Path) -> None:
    """A job that was held before its run was counted is counted while held, and started when released."""
    worker.put(tmp_path, ENDED)
    door = FakeSlurm([given_job(reason="JobHeldUser")], [node("n1"), BAD])

    def then(number: int) -> None:
        if number == 40:
            assert [sorted(change[2]) for change in door.changes] == [["AdminComment", "ExcNodeList"]]  # type: ignore[call-overload]
            door.known_jobs[7] = door.known_jobs[7]._replace(reason="BeginTime")

    serve(tmp_path, door, Clock(then))
    assert door.changes[1] == ("update_job", 7, {"StartTime": "now"})
