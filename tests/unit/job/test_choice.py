"""Alternatives of a job: whoever starts when, one of them runs."""

import random
import threading
from collections.abc import Mapping, Sequence

import pytest

from slurm_plugin.job import choice
from slurm_plugin.job.launch import Launcher
from slurm_plugin.slurm import Job, SlurmAwayError, SlurmError
from tests.fakes import FakeSlurm, job

GROUP = (11, 12, 13)


class Quick(Launcher):
    """Sleeps no time."""

    def pause(self, seconds: float) -> None:
        """Counts it."""
        self.paused = getattr(self, "paused", 0.0) + seconds


def given(**states: str) -> dict[int, Job]:
    """Jobs `j11="RUNNING"`."""
    return {int(name[1:]): job(int(name[1:]), state=state, reason="") for name, state in states.items()}


@pytest.mark.parametrize(
    ("jobs", "winner"),
    [
        (given(j12="RUNNING", j11="PENDING", j13="PENDING"), None),
        (given(j12="RUNNING", j11="RUNNING"), 11),
        (given(j12="RUNNING", j11="CONFIGURING", j13="RUNNING"), 11),
        (given(j12="RUNNING", j13="RUNNING"), None),
        (given(j12="RUNNING", j11="CANCELLED", j13="COMPLETING"), None),
        (given(j12="RUNNING", j11="COMPLETING"), None),
        (given(j12="RUNNING", j11="UNKNOWN"), 11),
        (given(j12="RUNNING", j11="SUSPENDED"), 11),
        (given(j12="RUNNING", j11="REQUEUE_HOLD"), None),
        (given(j12="RUNNING"), None),
        ({}, None),
    ],
)
def test_who_goes_on(jobs: Mapping[int, Job], winner: int | None) -> None:
    """The lowest number of those that run."""
    assert choice.lost_to(12, jobs) == winner


def test_the_first_to_start(capsys: pytest.CaptureFixture[str]) -> None:
    """It holds the others before it looks, and cancels them."""
    door = FakeSlurm(given(j11="PENDING", j12="RUNNING", j13="PENDING").values())
    assert choice.claim(door, 12, (11, 13), Quick())
    assert set(door.changes[:2]) == {("hold", 11), ("hold", 13)}
    assert door.changes[2:] == [("cancel", 11), ("cancel", 13)]
    assert "this job runs, and not those with which it was submitted (any_of): 11, 13" in capsys.readouterr().out


def test_the_second_of_a_second(capsys: pytest.CaptureFixture[str]) -> None:
    """It lets the winner go, and cancels itself."""
    door = FakeSlurm(given(j11="CONFIGURING", j12="RUNNING", j13="PENDING").values())
    assert not choice.claim(door, 12, (11, 13), Quick())
    assert set(door.changes[:2]) == {("hold", 11), ("hold", 13)}
    assert door.changes[2:] == [("release", 11), ("release", 13), ("cancel", 12)]
    assert "job 11 runs in the place of this one" in capsys.readouterr().out


def test_refusals() -> None:
    """A job that has ended cannot be held; one that is forgotten neither."""
    door = FakeSlurm(given(j12="RUNNING", j11="COMPLETED").values())
    door.refusals = {("hold", 11): 1, ("hold", 13): 1, ("cancel", 13): 1}
    assert choice.claim(door, 12, (11, 13), Quick())


def test_one_that_cannot_be_held() -> None:
    """It could start later and win: it is held again, and where that is refused on and on nothing runs."""
    door = FakeSlurm(given(j11="PENDING", j12="RUNNING").values())
    door.refusals = {("hold", 11): 5}
    launcher = Quick()
    assert choice.claim(door, 12, (11,), launcher)
    assert door.changes[0] == ("hold", 11)
    door = FakeSlurm(given(j11="PENDING", j12="RUNNING").values())
    door.refusals = {("hold", 11): 1000}
    with pytest.raises(SlurmError, match="job 11 cannot be kept from starting"):
        choice.claim(door, 12, (11,), Quick())
    assert door.changes == []


def test_one_that_cannot_be_cancelled(capsys: pytest.CaptureFixture[str]) -> None:
    """It is held, so it does no harm; that it is there is said, with what to do."""
    door = FakeSlurm(given(j11="PENDING", j12="RUNNING").values())
    door.refusals = {("cancel", 11): 3}
    assert choice.claim(door, 12, (11,), Quick())
    assert "could not cancel" not in capsys.readouterr().out
    assert door.known_jobs[11].state == "CANCELLED"
    door = FakeSlurm(given(j11="PENDING", j12="RUNNING").values())
    door.refusals = {("cancel", 11): 1000}
    assert choice.claim(door, 12, (11,), Quick())
    assert "could not cancel 11, which wait(s) on hold; do it with: scancel 11" in capsys.readouterr().out


def test_a_job_that_is_told_to_end_meanwhile() -> None:
    """Nothing of it starts any more."""
    door = FakeSlurm(given(j11="PENDING", j12="RUNNING").values())
    launcher = Quick()
    launcher.told_to_end = True
    assert not choice.claim(door, 12, (11,), launcher)


class Away(FakeSlurm):
    """A controller that answers no more."""

    def hold(self, job_id: int) -> None:
        """It may have been done."""
        raise SlurmAwayError("away")


def test_nobody_knows() -> None:
    """Where no controller answers nothing runs."""
    launcher = Quick()
    launcher.told_to_end = True  # or 300 s later
    with pytest.raises(SlurmAwayError):
        choice.claim(Away(given(j12="RUNNING").values()), 12, (11,), launcher)


def test_by_the_comment(capsys: pytest.CaptureFixture[str]) -> None:
    """The job's own comment names the others; one that names none, or no other, has nobody to ask."""
    jobs = given(j11="PENDING", j12="RUNNING")
    jobs[12] = jobs[12]._replace(comment="mine [sp1;retries=1;ib=auto;any=11,12]")
    door = FakeSlurm(jobs.values())
    assert choice.is_mine(door, 12, Quick())
    assert ("cancel", 11) in door.changes
    for comment in ("", "[sp1;retries=1]", "[sp1;retries=1;any=12]"):
        door = FakeSlurm([job(12, state="RUNNING", comment=comment)])
        assert choice.is_mine(door, 12, Quick())
        assert door.changes == []
    launcher = Quick()
    launcher.told_to_end = True
    jobs[12] = jobs[12]._replace(comment="[sp1;retries=1;any=11,12]")
    capsys.readouterr()
    assert not choice.is_mine(Away(jobs.values()), 12, launcher)
    assert "nobody can tell which of the jobs" in capsys.readouterr().out


class Turns:
    """Threads that take one step at a time, in an order that a seed decides."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311 - an order, no secret
        self.lock, self.waiting = threading.Condition(), set[int]()
        self.turn: int | None = None
        self.there = 0

    def step(self, me: int) -> None:
        """Wait for a turn of this one's."""
        with self.lock:
            self.waiting.add(me)
            self.lock.notify_all()
            self.lock.wait_for(lambda: self.turn == me)
            self.turn = None
            self.waiting.discard(me)

    def gone(self) -> None:
        """One thread less."""
        with self.lock:
            self.there -= 1
            self.lock.notify_all()


class Controller:
    """slurmctld as far as it matters here: each change is one step, and a held job does not start."""

    def __init__(self, seed: int) -> None:
        self.states = dict.fromkeys(GROUP, "PENDING")
        self.held, self.ran, self.turns = set[int](), list[int](), Turns(seed)

    def start(self, number: int) -> None:
        """The scheduler's step."""
        self.states[number] = "RUNNING"

    def door(self, me: int) -> "Door":
        """How one job asks."""
        return Door(self, me)


class Door(FakeSlurm):
    """One job's questions; after each step another one may go on."""

    def __init__(self, controller: Controller, me: int) -> None:
        super().__init__()
        self.controller, self.me = controller, me

    def _turn(self) -> None:
        self.controller.turns.step(self.me)
        if self.controller.states[self.me] == "CANCELLED":  # Slurm ends its script
            raise SystemExit

    def hold(self, job_id: int) -> None:
        """Of a running one too; ended ones are refused."""
        self._turn()
        if self.controller.states[job_id] == "CANCELLED":
            raise SlurmError("Job has already finished")
        self.controller.held.add(job_id)

    def release(self, job_id: int) -> None:
        """The same."""
        self._turn()
        self.controller.held.discard(job_id)

    def cancel(self, job_id: int) -> None:
        """At once."""
        self._turn()
        self.controller.states[job_id] = "CANCELLED"

    def jobs(self, job_ids: Sequence[int] | None = None) -> Mapping[int, Job]:
        """All that are asked for."""
        self._turn()
        states, held = self.controller.states, self.controller.held
        return {
            each: job(each, state=states[each], reason="JobHeldUser" if each in held else "") for each in job_ids or ()
        }


@pytest.mark.parametrize("seed", range(200))
def test_whatever_the_order(seed: int) -> None:
    """One program runs, in every order of starts and steps; none that is left is held, and no other one is left."""
    controller = Controller(seed)
    turns = controller.turns

    def script(me: int) -> None:
        try:
            turns.step(me)
            if choice.claim(controller.door(me), me, [each for each in GROUP if each != me], Quick()):
                controller.ran.append(me)
        except SystemExit:
            pass
        finally:
            turns.gone()

    threads: dict[int, threading.Thread] = {}
    while True:
        with turns.lock:
            turns.lock.wait_for(lambda: turns.turn is None and len(turns.waiting) == turns.there)
            startable = [each for each in GROUP if controller.states[each] == "PENDING" and each not in controller.held]
            moves = [*startable, *sorted(turns.waiting)]
            if not moves:
                break
            number = turns.random.choice(moves)
            if number in startable:
                controller.start(number)
                threads[number] = threading.Thread(target=script, args=(number,))
                turns.there += 1
                threads[number].start()
            else:
                turns.turn = number
                turns.lock.notify_all()
    for thread in threads.values():
        thread.join()
    assert len(controller.ran) == 1
    assert controller.states == dict.fromkeys(GROUP, "CANCELLED") | {controller.ran[0]: "RUNNING"}
    assert controller.ran[0] not in controller.held
