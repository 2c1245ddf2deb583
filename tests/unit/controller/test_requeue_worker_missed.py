"""Ends of runs without a spool entry, because the hook was killed or the disk was full."""

from dataclasses import replace
from pathlib import Path

import pytest

from slurm_plugin.controller import missed_runs, requeue_worker
from slurm_plugin.controller.missed_runs import unspooled_ends
from slurm_plugin.controller.requeue_policy import Ended
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


def test_many_preempted_jobs_on_many_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """They stay uncounted. Only nodes that are drained for a job are compared with each of them."""
    compared: list[list[str]] = []
    monkeypatch.setattr(
        missed_runs, "_named", lambda nodes, *_: compared.append([each.name for each in nodes]) or ("n2",)
    )
    jobs = [given_job(number) for number in range(7, 10)]
    found = unspooled_ends(jobs, lambda: {"n2": BAD, **{f"m{number}": node(f"m{number}") for number in range(9)}})
    assert compared == [["n2"]] * 3
    assert [each.job_id for each in found] == [7]


def test_another_job_is_missed(tmp_path: Path) -> None:
    """A worker with another entry finds it before it ends, counts it, excludes the node and starts the job."""
    requeue_worker.put(tmp_path, Ended(9, 1, ("n3",)))
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
    requeue_worker.serve(tmp_path, door, look=True, clock=clock)
    assert [sorted(change[2]) for change in door.changes] == [["AdminComment", "ExcNodeList"], ["StartTime"]]  # type: ignore[call-overload]


def test_a_spool_without_room_for_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker locks the directory itself."""
    (tmp_path / "lock").mkdir()  # cannot be opened for writing
    door = FakeSlurm([given_job()], [node("n1"), BAD])
    clock = Clock()
    requeue_worker.serve(tmp_path, door, look=True, clock=clock)
    assert len(door.changes) == 2


def test_one_that_cannot_be_dealt_with_is_looked_at_once(tmp_path: Path) -> None:
    """The worker does not find the same end again after a Drop: it ends."""
    used_up = given_job(reason="JobHeldUser", admin_comment=written("", Grant(1, 1)))
    requeue_worker.put(tmp_path, ENDED)
    serve(tmp_path, FakeSlurm([used_up], [BAD]))
    assert list(requeue_worker.entries(tmp_path)) == []


def test_held_and_released(tmp_path: Path) -> None:
    """A job that was held before its run was counted is counted while held, and started when released."""
    requeue_worker.put(tmp_path, ENDED)
    door = FakeSlurm([given_job(reason="JobHeldUser")], [node("n1"), BAD])

    def then(number: int) -> None:
        if number == 40:
            assert [sorted(change[2]) for change in door.changes] == [["AdminComment", "ExcNodeList"]]  # type: ignore[call-overload]
            door.known_jobs[7] = door.known_jobs[7]._replace(reason="BeginTime")

    serve(tmp_path, door, Clock(then))
    assert door.changes[1] == ("update_job", 7, {"StartTime": "now"})


def test_runs_whose_ends_come_together(tmp_path: Path) -> None:
    """Each run that a fault ended uses a restart, the earliest first; the job starts once.

    A node that a later run used again is not to blame for the earlier one: that run was requeued for another cause.
    """
    drained = [node(name, "IDLE", "DRAIN", reason=f"slurm_plugin: {name} [job 7]") for name in ("n2", "n3")]
    cases: list[tuple[str, Ended, list[Node], int, list[str]]] = [
        ("both by a node", ENDED, drained, 3, ["n2", "n[2-3]"]),
        ("the first by a node, and no restart is left for the second", ENDED, drained, 1, ["n2"]),
        ("the first was preempted", Ended(7, 1, ("n1", "n3")), drained[1:], 3, ["n3"]),
        ("a node of the first went down", ENDED, [node("n2", "DOWN"), drained[1]], 3, ["n2", "n[2-3]"]),
    ]
    for what, first, nodes, granted, excluded in cases:
        for ended in (first, Ended(7, 2, ("n1", "n3"))):
            requeue_worker.put(tmp_path, ended)
        door = FakeSlurm([given_job(restarts=2, admin_comment=written("", Grant(granted)))], [node("n1"), *nodes])
        serve(tmp_path, door)
        fields = [change[2] for change in door.changes if isinstance(change[-1], dict)]
        assert [each["ExcNodeList"] for each in fields if "ExcNodeList" in each] == excluded, what  # type: ignore[index, operator]
        given = parse(door.known_jobs[7].admin_comment)
        assert given is not None
        assert given.requeues == len(excluded), what
        last = ("update_job", 7, {"StartTime": "now"}) if granted > 1 else ("cancel", 7)
        assert [door.changes[-1], door.changes.count(last)] == [last, 1], what
        assert list(requeue_worker.entries(tmp_path)) == []


def test_a_run_whose_end_nobody_reported(tmp_path: Path) -> None:
    """The job started by itself after Slurm's delay, and its next run ended. Both use a restart.

    A drain of an excluded node, or of another job, says nothing about the run before: it was preempted.
    """
    third = node("n3", "IDLE", "DRAIN", reason="slurm_plugin: y [job 7]")
    cases: list[tuple[str, Grant, str, int, int]] = [
        ("by a drain", Grant(3), "", 2, 0),
        ("no restart is left for the last run", Grant(1), "", 1, 0),
        ("the node was excluded before", Grant(3, 0, ("n3",)), "", 1, 0),
        ("the list of the grant is full", Grant(3), "n3", 1, 0),
        ("the run before is counted", Grant(3, 1, ("n9",), counted=0), "", 2, 1),
    ]
    for what, given, excluded, requeues, counted in cases:
        requeue_worker.put(tmp_path, Ended(7, 2, ("n1", "n2")))
        job = given_job(restarts=2, excluded=excluded, admin_comment=written("", given))
        door = FakeSlurm([job], [node("n1"), BAD, third])
        serve(tmp_path, door)
        found = parse(door.known_jobs[7].admin_comment)
        assert found is not None
        assert found.requeues == requeues, what
        assert (("nodes", ()) in door.questions) is not counted, what
        assert [run.number for run in found.runs] == ([1] if requeues - counted == 1 < given.left else [0, 1]), what
