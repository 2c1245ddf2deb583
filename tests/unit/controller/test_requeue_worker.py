"""The controller's worker handles each entry to its end, whatever Slurm answers."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from slurm_plugin.controller import requeue_worker
from slurm_plugin.controller.requeue_policy import Ended
from slurm_plugin.records.grant import Grant, parse, written
from slurm_plugin.slurm import Job
from tests.fakes import FakeSlurm, node
from tests.unit.controller.serving import BAD, ENDED, SETTLE_S, Clock, given_job, serve

COUNTED = Grant(3, 1, ("n2",), "", "n2: gpu-check: x", 0)


def changed(door: FakeSlurm) -> list[tuple[object, ...]]:
    """Return the changes, without the grant's runs, which contain the time."""
    found: list[tuple[object, ...]] = []
    for verb, *arguments in door.changes:
        for fields in arguments:
            if isinstance(fields, dict) and (given := parse(fields.get("AdminComment", ""))):
                assert given.runs[-1][:2] == (0, "n[1-2]")
                fields["AdminComment"] = written(fields["AdminComment"], replace(given, runs=()))
        found.append((verb, *arguments))
    return found


def test_count_then_wait_then_start(tmp_path: Path) -> None:
    """One update counts and excludes. The start comes when the credential has settled, not before."""
    requeue_worker.put(tmp_path, ENDED)
    door = FakeSlurm([given_job(excluded="n8")], [node("n1"), BAD, node("n8")])
    count = ("update_job", 7, {"AdminComment": written("", COUNTED), "ExcNodeList": "n[8,2]"})
    start = ("update_job", 7, {"StartTime": "now"})
    history: list[tuple[float, int]] = []
    clock = Clock(lambda _: history.append((clock.now - 1000.0, len(door.changes))))
    serve(tmp_path, door, clock)
    assert changed(door) == [count, start]
    assert history[0] == (pytest.approx(requeue_worker.FRESH_EVERY_S), 1)
    assert all(changes == 1 for after_s, changes in history if after_s < SETTLE_S)
    assert history[-1][1] == 2
    assert list(requeue_worker.entries(tmp_path)) == []


@pytest.mark.parametrize(
    ("version", "second", "settle_s"),
    [
        ("22.05.8", 0.9, 2.0),
        ("24.11.5", 0.3, 0.7),
        ("24.11.5", 0.9, 0.1),
        ("26.05.3", 0.3, 0.0),
        ("?", 0.9, 2.0),
    ],
)
def test_how_long_it_settles(tmp_path: Path, version: str, second: float, settle_s: float) -> None:
    """As the release requires; the longest time if the release is unknown."""
    requeue_worker.put(tmp_path, ENDED)
    door = FakeSlurm([given_job()], [node("n1"), BAD])
    door.settings["SLURM_VERSION"] = version
    clock = Clock(lambda _: times.append((clock.now - start, len(door.changes))))
    times: list[tuple[float, int]] = []
    clock.now = start = 1000.0 + second
    serve(tmp_path, door, clock)
    assert door.changes[-1] == ("update_job", 7, {"StartTime": "now"})
    started_s = max((after_s for after_s, changes in times if changes < 2), default=0.0)
    late_s = 0.05 if settle_s else requeue_worker.FRESH_EVERY_S + 0.05
    assert settle_s <= started_s < settle_s + late_s


def test_a_slow_controller_is_asked_less_often(tmp_path: Path) -> None:
    """It rests for three times a round, however few jobs there are. A settled job does not wait longer."""
    requeue_worker.put(tmp_path, ENDED)
    door = FakeSlurm([given_job(state="COMPLETING")], [node("n1"), BAD])
    answer, clock = door.jobs, Clock()

    def jobs(job_ids: Sequence[int] | None = None) -> Mapping[int, Job]:
        clock.now += 0.2
        if len(clock.sleeps) == 8:
            door.known_jobs[7] = given_job()
        return answer(job_ids)

    door.jobs = jobs  # type: ignore[method-assign]
    serve(tmp_path, door, clock)
    assert clock.sleeps[:8] == [pytest.approx(requeue_worker.REST * 0.2)] * 8
    assert door.changes[-1] == ("update_job", 7, {"StartTime": "now"})


def test_settling_begins_when_it_is_pending(tmp_path: Path) -> None:
    """Nothing is written while the job completes. The time counts from when the worker first saw it pending."""
    requeue_worker.put(tmp_path, ENDED)
    door = FakeSlurm([given_job(state="COMPLETING")], [node("n1"), BAD])

    def then(number: int) -> None:
        if number < 20:
            assert door.changes == []
        if number == 20:
            door.known_jobs[7] = given_job()

    clock = serve(tmp_path, door, Clock(then))
    assert len(door.changes) == 2
    assert clock.now - 1000.0 >= sum(clock.sleeps[:20]) + SETTLE_S


def test_nodes_are_asked_for_once(tmp_path: Path) -> None:
    """One request for all jobs in each round, and for nodes only until the restart is counted."""
    requeue_worker.put(tmp_path, ENDED)
    requeue_worker.put(tmp_path, Ended(9, 1, ("n2", "n3")))
    door = FakeSlurm([given_job(), given_job(9)], [node("n1"), BAD, node("n3", "DOWN")])
    serve(tmp_path, door)
    first = [("jobs", (7, 9)), ("nodes", ("n1", "n2", "n3")), ("queueing", (7, 9))]
    assert door.questions[:4] == [*first, ("jobs", (7, 9))]
    assert [question for question, _ in door.questions if question != "jobs"] == ["nodes", "queueing"]


def test_running_again(tmp_path: Path) -> None:
    """A job that runs before it was counted is counted. Its list stays: Slurm changes that only for a pending job."""
    requeue_worker.put(tmp_path, ENDED)
    door = FakeSlurm([given_job(state="RUNNING")], [node("n1"), BAD])
    serve(tmp_path, door)
    assert changed(door) == [("update_job", 7, {"AdminComment": written("", COUNTED)})]
    assert list(requeue_worker.entries(tmp_path)) == []


def test_nothing_to_exclude(tmp_path: Path) -> None:
    """An empty list is not written: an empty ExcNodeList would change the job."""
    requeue_worker.put(tmp_path, ENDED)
    door = FakeSlurm([given_job(comment="[sp1;retries=3;run=0]")], [node("n1"), node("n2")])
    serve(tmp_path, door)
    fresh = Grant(3, 1, (), "", "the job asked for it", 0)
    assert changed(door) == [
        ("update_job", 7, {"AdminComment": written("", fresh)}),
        ("update_job", 7, {"StartTime": "now"}),
    ]


def test_no_restart_left(tmp_path: Path) -> None:
    """The reason is written before the job is cancelled, so that `why` can show it."""
    used_up = Grant(1, 1, ("n9",), "", "n9: x", -1)
    requeue_worker.put(tmp_path, ENDED)
    door = FakeSlurm([given_job(admin_comment=f"project {written('', used_up)}")], [BAD])
    serve(tmp_path, door)
    last = Grant(1, 1, ("n9",), "", "no restart left after n2: gpu-check: x", -1)
    assert changed(door) == [("update_job", 7, {"AdminComment": written("project ", last)}), ("cancel", 7)]


def test_cancel_is_refused(tmp_path: Path) -> None:
    """A job without restarts is cancelled later, never started."""
    requeue_worker.put(tmp_path, ENDED)
    door = FakeSlurm([given_job(admin_comment=written("", Grant(0)))], [BAD])
    door.refusals["cancel", 7] = 10
    serve(tmp_path, door)
    assert door.changes[-1] == ("cancel", 7)
    assert not any("StartTime" in change[2] for change in door.changes[:-1])  # type: ignore[operator]


@pytest.mark.parametrize(
    "found",
    [
        [],
        [given_job(state="COMPLETED")],
        [given_job(admin_comment="")],
        [given_job(reason="JobHeldUser", admin_comment=written("", Grant(1, 1)))],
        [given_job(state="RUNNING", restarts=0)],
    ],
)
def test_nothing_to_do(tmp_path: Path, found: list[Job]) -> None:
    """A job that is gone, ended, held or without a grant is dropped in the first round, unchanged."""
    requeue_worker.put(tmp_path, ENDED)
    door = FakeSlurm(found, [BAD])
    assert len(serve(tmp_path, door).sleeps) == 1
    assert door.changes == []
    assert list(requeue_worker.entries(tmp_path)) == []


@pytest.mark.parametrize("call", [("jobs", None), ("nodes", None), ("update_job", 7)])
def test_slurm_does_not_answer(tmp_path: Path, call: tuple[str, object]) -> None:
    """The entry stays until the job is handled, and nothing is counted twice."""
    requeue_worker.put(tmp_path, ENDED)
    door = FakeSlurm([given_job()], [node("n1"), BAD])
    door.refusals[call] = 5

    def then(number: int) -> None:
        if number <= 5:
            assert list(requeue_worker.entries(tmp_path)) == [ENDED]
            assert door.changes == []

    serve(tmp_path, door, Clock(then))
    assert len(door.changes) == 2
    found = parse(door.known_jobs[7].admin_comment)
    assert found is not None
    assert found.requeues == 1


def test_start_is_refused(tmp_path: Path) -> None:
    """The second of two changes is retried, and the restart is not counted again."""
    requeue_worker.put(tmp_path, ENDED)
    door = FakeSlurm([given_job()], [node("n1"), BAD])

    def then(number: int) -> None:
        if number == 1:
            door.refusals["update_job", 7] = 3

    serve(tmp_path, door, Clock(then))
    assert [sorted(change[2]) for change in door.changes] == [["AdminComment", "ExcNodeList"], ["StartTime"]]  # type: ignore[call-overload]
    assert list(requeue_worker.entries(tmp_path)) == []


@pytest.mark.parametrize("first", [given_job(5), given_job(5, excluded="n[1")])
def test_one_job_holds_up_no_other(tmp_path: Path, first: Job) -> None:
    """A job that Slurm refuses to change, or with an unreadable list, does not delay others."""
    for ended in (Ended(5, 1, ("n5",)), ENDED):
        requeue_worker.put(tmp_path, ended)
    door = FakeSlurm([first, given_job()], [node("n5", "DOWN"), BAD])
    door.refusals["update_job", 5] = float("inf")

    def then(number: int) -> None:
        if number == 20:
            assert list(requeue_worker.entries(tmp_path)) == [Ended(5, 1, ("n5",))]
            del door.known_jobs[5]

    serve(tmp_path, door, Clock(then))
    assert [change[1] for change in door.changes] == [7, 7]


def test_the_last_run_of_a_job_counts(tmp_path: Path) -> None:
    """Of two entries of one job the older one is dropped: its nodes say nothing about the last run."""
    requeue_worker.put(tmp_path, Ended(7, 1, ("n2", "n3")))
    requeue_worker.put(tmp_path, Ended(7, 2, ("n4", "n5")))
    marked = "[sp1;retries=3;ib=auto;run=1;x=0]"
    door = FakeSlurm([given_job(restarts=2, comment=marked, admin_comment=written("", Grant(3, 1, counted=0)))], [])
    serve(tmp_path, door)
    assert door.changes[0][2]["ExcNodeList"] == "n4"
    assert list(requeue_worker.entries(tmp_path)) == []
