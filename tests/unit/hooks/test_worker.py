"""The controller's worker: one at a time, each entry to its end, whatever Slurm answers meanwhile."""

import fcntl
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from slurm_plugin.after_run import NO_POLICY, Ended
from slurm_plugin.grant import Grant, parse, written
from slurm_plugin.hooks import spool, worker
from slurm_plugin.queueing import NEVER, Policy
from slurm_plugin.slurm import Job, Queueing
from slurm_plugin.slurm.releases import RELEASES
from tests.fakes import FakeSlurm, job, node

SETTLE_S = RELEASES[0].settle_s
ENDED = Ended(7, 1, ("n1", "n2"))
GRANTED = written("", Grant(3))
COUNTED = Grant(3, 1, ("n2",), "", "n2: gpu-check: x", 0)
BAD = node("n2", "IDLE", "DRAIN", reason="slurm_plugin: gpu-check: x [job 7]")
MOST_SLEEPS = 200  # a worker that sleeps more often in a test does not end


class Clock:
    """Time that passes only while the worker sleeps; `then` is called after each sleep, with its number."""

    def __init__(self, then: Callable[[int], None] = lambda _: None) -> None:
        self.now, self.sleeps, self._then = 1000.0, list[float](), then

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.sleeps.append(seconds)
        assert len(self.sleeps) < MOST_SLEEPS, "the worker does not end"
        self._then(len(self.sleeps))


def given_job(job_id: int = 7, **fields: object) -> Job:
    """A requeued job with three restarts granted."""
    return job(job_id, **{"admin_comment": GRANTED, **fields})


def serve(directory: Path, door: FakeSlurm, clock: Clock | None = None, policy: Policy = NO_POLICY) -> Clock:
    """Serve with time that does not pass by itself."""
    clock = clock or Clock()
    worker.serve(directory, door, policy, clock=clock, sleep=clock.sleep, wall=clock)
    return clock


def test_count_then_wait_then_start(tmp_path: Path) -> None:
    """Counted and excluded in one update at once; started after the credential has settled, and no sooner."""
    spool.put(tmp_path, ENDED)
    door = FakeSlurm([given_job(excluded="n8")], [node("n1"), BAD])
    count = ("update_job", 7, {"AdminComment": written("", COUNTED), "ExcNodeList": "n[8,2]"})
    start = ("update_job", 7, {"StartTime": "now"})
    history: list[tuple[float, int]] = []
    clock = Clock(lambda _: history.append((clock.now - 1000.0, len(door.changes))))
    serve(tmp_path, door, clock)
    assert door.changes == [count, start]
    assert history[0] == (pytest.approx(worker.FRESH_EVERY_S), 1)
    assert all(changes == 1 for after_s, changes in history if after_s < SETTLE_S)
    assert history[-1][1] == 2
    assert list(spool.entries(tmp_path)) == []


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
    """As the release needs it, until the next second or for some; the longest time where that cannot be told."""
    spool.put(tmp_path, ENDED)
    door = FakeSlurm([given_job()], [node("n1"), BAD])
    door.settings["SLURM_VERSION"] = version
    clock = Clock()
    clock.now = start = 1000.0 + second
    serve(tmp_path, door, clock)
    assert door.changes[-1] == ("update_job", 7, {"StartTime": "now"})
    assert settle_s <= clock.now - start < settle_s + 0.05 + worker.FEW_EVERY_S  # after which it looks once more


def test_settling_begins_when_it_is_pending(tmp_path: Path) -> None:
    """While the job completes nothing is written; the time to settle counts from when it was first seen pending."""
    spool.put(tmp_path, ENDED)
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
    """All jobs in one question a round; nodes only until the restart is counted."""
    spool.put(tmp_path, ENDED)
    spool.put(tmp_path, Ended(9, 1, ("n2", "n3")))
    door = FakeSlurm([given_job(), given_job(9)], [node("n1"), BAD, node("n3", "DOWN")])
    serve(tmp_path, door)
    first = [("jobs", (7, 9)), ("nodes", ("n1", "n2", "n3")), ("queueing", (7, 9))]
    assert door.questions[:4] == [*first, ("jobs", (7, 9))]
    assert [question for question, _ in door.questions if question != "jobs"] == ["nodes", "queueing"]


def test_running_again(tmp_path: Path) -> None:
    """A job that runs before it was counted is counted; its list stays: Slurm changes that of a pending job only."""
    spool.put(tmp_path, ENDED)
    door = FakeSlurm([given_job(state="RUNNING")], [node("n1"), BAD])
    serve(tmp_path, door)
    assert door.changes == [("update_job", 7, {"AdminComment": written("", COUNTED)})]
    assert list(spool.entries(tmp_path)) == []


def test_nothing_to_exclude(tmp_path: Path) -> None:
    """A list that stays empty is not written: an empty ExcNodeList would mean something else."""
    spool.put(tmp_path, ENDED)
    door = FakeSlurm([given_job(comment="[sp1;retries=3;run=0]")], [node("n1"), node("n2")])
    serve(tmp_path, door)
    fresh = Grant(3, 1, (), "", "the job asked for it", 0)
    assert door.changes == [
        ("update_job", 7, {"AdminComment": written("", fresh)}),
        ("update_job", 7, {"StartTime": "now"}),
    ]


def test_no_restart_left(tmp_path: Path) -> None:
    """The reason is written before the job is cancelled, so that `why` can say it."""
    used_up = Grant(1, 1, ("n9",), "", "n9: x", -1)
    spool.put(tmp_path, ENDED)
    door = FakeSlurm([given_job(admin_comment=f"project {written('', used_up)}")], [BAD])
    serve(tmp_path, door)
    last = Grant(1, 1, ("n9",), "", "no restart left after n2: gpu-check: x", -1)
    assert door.changes == [("update_job", 7, {"AdminComment": written("project ", last)}), ("cancel", 7)]


def test_cancel_is_refused(tmp_path: Path) -> None:
    """A job without restarts that Slurm does not cancel at once is cancelled later, never started."""
    spool.put(tmp_path, ENDED)
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
        [given_job(reason="JobHeldUser")],
        [given_job(state="RUNNING", restarts=0)],
    ],
)
def test_nothing_to_do(tmp_path: Path, found: list[Job]) -> None:
    """A job that is gone, ended, held, or not ours: dropped in the first round, nothing changed."""
    spool.put(tmp_path, ENDED)
    door = FakeSlurm(found, [BAD])
    assert len(serve(tmp_path, door).sleeps) == 1
    assert door.changes == []
    assert list(spool.entries(tmp_path)) == []


def test_empty_spool(tmp_path: Path) -> None:
    """Nothing there: no question to Slurm, no sleep, not even a lock."""
    door = FakeSlurm()
    assert serve(tmp_path, door).sleeps == []
    assert door.questions == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("call", [("jobs", None), ("nodes", None), ("update_job", 7)])
def test_slurm_does_not_answer(tmp_path: Path, call: tuple[str, object]) -> None:
    """A refusal is tried again: the entry stays until the job is dealt with, and nothing is counted twice."""
    spool.put(tmp_path, ENDED)
    door = FakeSlurm([given_job()], [node("n1"), BAD])
    door.refusals[call] = 5

    def then(number: int) -> None:
        if number <= 5:
            assert list(spool.entries(tmp_path)) == [ENDED]
            assert door.changes == []

    serve(tmp_path, door, Clock(then))
    assert len(door.changes) == 2
    found = parse(door.known_jobs[7].admin_comment)
    assert found is not None
    assert found.requeues == 1


def test_start_is_refused(tmp_path: Path) -> None:
    """The second of the two changes refused: tried again, and the restart is not counted again."""
    spool.put(tmp_path, ENDED)
    door = FakeSlurm([given_job()], [node("n1"), BAD])

    def then(number: int) -> None:
        if number == 1:
            door.refusals["update_job", 7] = 3

    serve(tmp_path, door, Clock(then))
    assert [sorted(change[2]) for change in door.changes] == [["AdminComment", "ExcNodeList"], ["StartTime"]]  # type: ignore[call-overload]
    assert list(spool.entries(tmp_path)) == []


@pytest.mark.parametrize("first", [given_job(5), given_job(5, excluded="n[1")])
def test_one_job_holds_up_no_other(tmp_path: Path, first: Job) -> None:
    """A job that Slurm always refuses to change, or whose list cannot be read, does not keep those behind it."""
    for ended in (Ended(5, 1, ("n5",)), ENDED):
        spool.put(tmp_path, ended)
    door = FakeSlurm([first, given_job()], [node("n5", "DOWN"), BAD])
    door.refusals["update_job", 5] = float("inf")

    def then(number: int) -> None:
        if number == 20:
            assert list(spool.entries(tmp_path)) == [Ended(5, 1, ("n5",))]
            del door.known_jobs[5]

    serve(tmp_path, door, Clock(then))
    assert [change[1] for change in door.changes] == [7, 7]


def test_second_worker(tmp_path: Path) -> None:
    """Where one is at work, another asks nothing and is gone at once; the entry is for the first."""
    spool.put(tmp_path, ENDED)
    door = FakeSlurm([given_job()])
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert serve(tmp_path, door).sleeps == []
    assert door.questions == []
    assert list(spool.entries(tmp_path)) == [ENDED]


def test_entry_written_meanwhile(tmp_path: Path) -> None:
    """An entry that comes while the first worker is busy, with a worker that finds it so, is served by the first."""
    spool.put(tmp_path, ENDED)
    door = FakeSlurm([given_job(), given_job(9)], [BAD, node("n3", "DOWN")])
    second = FakeSlurm()

    def then(number: int) -> None:
        if number == 2:
            spool.put(tmp_path, Ended(9, 1, ("n3",)))
            serve(tmp_path, second)

    serve(tmp_path, door, Clock(then))
    assert second.questions == []
    assert [change[1] for change in door.changes] == [7, 9, 7, 9]
    assert list(spool.entries(tmp_path)) == []


def test_entry_written_at_the_last_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between a worker's last look and its letting the lock go: it looks once more."""
    late = [Ended(9, 1, ("n3",))]
    whole = worker._empty

    def and_then(directory: Path, *rest: object, **clocks: object) -> None:
        whole(directory, *rest, **clocks)  # type: ignore[arg-type]
        if late:
            spool.put(tmp_path, late.pop())
            serve(tmp_path, FakeSlurm())  # the worker of that entry: the lock is still held

    monkeypatch.setattr(worker, "_empty", and_then)
    spool.put(tmp_path, ENDED)
    door = FakeSlurm([given_job(), given_job(9)], [BAD, node("n3", "DOWN")])
    serve(tmp_path, door)
    assert [change[1] for change in door.changes] == [7, 7, 9, 9]


@pytest.mark.parametrize(("number", "every_s"), [(1, 0.25), (8, 0.25), (9, 1.0), (50, 1.0)])
def test_pace(tmp_path: Path, number: int, every_s: float) -> None:
    """A few jobs are looked at often for a moment and then four times a second, many once: one question for all."""
    ids = range(100, 100 + number)
    for each in ids:
        spool.put(tmp_path, Ended(each, 1, ("n3",)))
    door = FakeSlurm([given_job(each) for each in ids], [node("n3", "DOWN")])
    sleeps = serve(tmp_path, door).sleeps
    fresh = round(worker.FRESH_S / worker.FRESH_EVERY_S) if number <= worker.FEW else 0
    assert set(sleeps[:fresh]) <= {worker.FRESH_EVERY_S}
    assert {round(each, 6) for each in sleeps[fresh + 2 : -3]} <= {every_s}  # the last ones: until settled
    assert max(sleeps) == every_s
    assert ("jobs", tuple(ids)) in door.questions


def test_quiet(tmp_path: Path) -> None:
    """Where nothing happens for 15 s Slurm is asked every 5 s; at the first change the pace is back."""
    spool.put(tmp_path, ENDED)
    door = FakeSlurm([given_job(state="COMPLETING")], [node("n1"), BAD])
    asked: list[tuple[float, int]] = []  # when, and how often until then

    def then(number: int) -> None:
        asked.append((clock.now - 1000, len(door.questions)))
        if number == 100:
            door.known_jobs[7] = given_job()

    clock = Clock(then)
    serve(tmp_path, door, clock)
    assert set(clock.sleeps[:10]) == {worker.FRESH_EVERY_S}
    assert set(clock.sleeps[12:60]) == {worker.FEW_EVERY_S}
    assert set(clock.sleeps[70:100]) == {worker.MANY_EVERY_S}  # between two looks, into its own spool
    quiet = [count for when, count in asked if 20 <= when < 50]
    assert (quiet[-1] - quiet[0]) * worker.QUIET_EVERY_S <= 30
    assert max(clock.sleeps[105:]) == worker.FEW_EVERY_S
    assert len(door.changes) == 2


def test_an_entry_that_comes_in_a_long_pause(tmp_path: Path) -> None:
    """A run that ends while another one is waited for is looked at within a second."""
    spool.put(tmp_path, ENDED)
    door = FakeSlurm([given_job(state="COMPLETING"), given_job(9)], [node("n1"), BAD, node("n3", "DOWN")])
    came: list[float] = []
    dealt_with: list[float] = []

    def then(number: int) -> None:
        if number == 91:
            spool.put(tmp_path, Ended(9, 1, ("n3",)))
            came.append(clock.now)
        if door.changes and not dealt_with:
            dealt_with.append(clock.now)
            door.known_jobs.clear()

    clock = Clock(then)
    serve(tmp_path, door, clock)
    assert door.changes[0][1] == 9
    assert dealt_with[0] - came[0] <= 2 * worker.MANY_EVERY_S


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


def test_the_last_run_of_a_job_counts(tmp_path: Path) -> None:
    """Two entries of one job: the older one's nodes say nothing about the run that ended last, and it goes."""
    spool.put(tmp_path, Ended(7, 1, ("n2", "n3")))
    spool.put(tmp_path, Ended(7, 2, ("n4", "n5")))
    marked = "[sp1;retries=3;ib=auto;run=1;x=0]"
    door = FakeSlurm([given_job(restarts=2, comment=marked, admin_comment=written("", Grant(3, 1, counted=0)))], [])
    serve(tmp_path, door)
    assert door.changes[0][2]["ExcNodeList"] == "n4"
    assert list(spool.entries(tmp_path)) == []
