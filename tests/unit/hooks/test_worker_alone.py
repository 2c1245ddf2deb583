"""The controller's worker is one at a time, serves what comes meanwhile, and asks Slurm no more than it has to."""

import fcntl
from pathlib import Path

import pytest

from slurm_plugin.after_run import Ended
from slurm_plugin.hooks import spool, worker
from tests.fakes import FakeSlurm, node
from tests.unit.hooks.serving import BAD, ENDED, Clock, given_job, serve


def test_empty_spool(tmp_path: Path) -> None:
    """Nothing there: no question to Slurm, no sleep, not even a lock."""
    door = FakeSlurm()
    assert serve(tmp_path, door).sleeps == []
    assert door.questions == []
    assert list(tmp_path.iterdir()) == []


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
