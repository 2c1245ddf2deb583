"""Only one worker runs. It serves entries that arrive while it runs, and asks Slurm no more often than needed."""

import fcntl
from pathlib import Path

import pytest

from slurm_plugin.controller import requeue_worker
from slurm_plugin.controller.requeue_policy import Ended
from tests.fakes import FakeSlurm, node
from tests.unit.controller.serving import BAD, ENDED, Clock, given_job, serve


def test_empty_spool(tmp_path: Path) -> None:
    """Without entries it sends no request, does not sleep, and takes no lock."""
    door = FakeSlurm()
    assert serve(tmp_path, door).sleeps == []
    assert door.questions == []
    assert list(tmp_path.iterdir()) == []


def test_second_worker(tmp_path: Path) -> None:
    """A second one ends immediately, without a request. The first handles the entry."""
    requeue_worker.put(tmp_path, ENDED)
    door = FakeSlurm([given_job()])
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert serve(tmp_path, door).sleeps == []
    assert door.questions == []
    assert list(requeue_worker.entries(tmp_path)) == [ENDED]


def test_entry_written_meanwhile(tmp_path: Path) -> None:
    """The first worker also handles an entry whose own worker found the lock held."""
    requeue_worker.put(tmp_path, ENDED)
    door = FakeSlurm([given_job(), given_job(9)], [BAD, node("n3", "DOWN")])
    second = FakeSlurm()

    def then(number: int) -> None:
        if number == 2:
            requeue_worker.put(tmp_path, Ended(9, 1, ("n3",)))
            serve(tmp_path, second)

    serve(tmp_path, door, Clock(then))
    assert second.questions == []
    assert [change[1] for change in door.changes] == [7, 9, 7, 9]
    assert list(requeue_worker.entries(tmp_path)) == []


def test_entry_written_at_the_last_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry between the last read and the release of the lock is handled: the worker reads once more."""
    late = [Ended(9, 1, ("n3",))]
    whole = requeue_worker._serve_entries

    def and_then(directory: Path, *rest: object, **clocks: object) -> None:
        whole(directory, *rest, **clocks)  # type: ignore[arg-type]
        if late:
            requeue_worker.put(tmp_path, late.pop())
            serve(tmp_path, FakeSlurm())  # the worker of that entry: the lock is still held

    monkeypatch.setattr(requeue_worker, "_serve_entries", and_then)
    requeue_worker.put(tmp_path, ENDED)
    door = FakeSlurm([given_job(), given_job(9)], [BAD, node("n3", "DOWN")])
    serve(tmp_path, door)
    assert [change[1] for change in door.changes] == [7, 7, 9, 9]


@pytest.mark.parametrize(("number", "every_s"), [(1, 0.25), (8, 0.25), (9, 1.0), (50, 1.0)])
def test_pace(tmp_path: Path, number: int, every_s: float) -> None:
    """Few jobs: often for a moment, then four times a second. Many jobs: once a second. One request for all."""
    ids = range(100, 100 + number)
    for each in ids:
        requeue_worker.put(tmp_path, Ended(each, 1, ("n3",)))
    door = FakeSlurm([given_job(each) for each in ids], [node("n3", "DOWN")])
    sleeps = serve(tmp_path, door).sleeps
    fresh = round(requeue_worker.FRESH_S / requeue_worker.FRESH_EVERY_S) if number <= requeue_worker.FEW else 0
    assert set(sleeps[:fresh]) <= {requeue_worker.FRESH_EVERY_S}
    assert {round(each, 6) for each in sleeps[fresh + 2 : -3]} <= {every_s}  # the last sleeps end when the job settles
    assert max(sleeps) == every_s
    assert ("jobs", tuple(ids)) in door.questions


def test_quiet(tmp_path: Path) -> None:
    """After 15 s without a change the worker asks every 5 s. A change restores the pace."""
    requeue_worker.put(tmp_path, ENDED)
    door = FakeSlurm([given_job(state="COMPLETING")], [node("n1"), BAD])
    asked: list[tuple[float, int]] = []  # the time, and the number of requests so far

    def then(number: int) -> None:
        asked.append((clock.now - 1000, len(door.questions)))
        if number == 100:
            door.known_jobs[7] = given_job()

    clock = Clock(then)
    serve(tmp_path, door, clock)
    assert set(clock.sleeps[:10]) == {requeue_worker.FRESH_EVERY_S}
    assert set(clock.sleeps[12:60]) == {requeue_worker.FEW_EVERY_S}
    assert set(clock.sleeps[70:100]) == {requeue_worker.MANY_EVERY_S}  # it checks its own spool in between
    quiet = [count for when, count in asked if 20 <= when < 50]
    assert (quiet[-1] - quiet[0]) * requeue_worker.QUIET_EVERY_S <= 30
    assert max(clock.sleeps[105:]) == requeue_worker.FEW_EVERY_S
    assert len(door.changes) == 2


def test_an_entry_that_comes_in_a_long_pause(tmp_path: Path) -> None:
    """It is handled within a second."""
    requeue_worker.put(tmp_path, ENDED)
    door = FakeSlurm([given_job(state="COMPLETING"), given_job(9)], [node("n1"), BAD, node("n3", "DOWN")])
    came: list[float] = []
    dealt_with: list[float] = []

    def then(number: int) -> None:
        if number == 91:
            requeue_worker.put(tmp_path, Ended(9, 1, ("n3",)))
            came.append(clock.now)
        if door.changes and not dealt_with:
            dealt_with.append(clock.now)
            door.known_jobs.clear()

    clock = Clock(then)
    serve(tmp_path, door, clock)
    assert door.changes[0][1] == 9
    assert dealt_with[0] - came[0] <= 2 * requeue_worker.MANY_EVERY_S
