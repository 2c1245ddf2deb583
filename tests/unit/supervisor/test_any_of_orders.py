"""Alternatives of a job: in whatever order they start, one of them runs."""

import random
import threading
from collections.abc import Mapping, Sequence

from slurm_plugin.slurm import Job, SlurmError
from slurm_plugin.supervisor import any_of
from slurm_plugin.supervisor.launcher import Launcher
from tests.fakes import FakeSlurm, job

GROUP = (11, 12, 13)


class Quick(Launcher):
    """Does not sleep."""

    def pause(self, seconds: float) -> None:
        """Continue."""


class Turns:
    """Threads that take one step at a time, in an order that a seed decides."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311 - no secret
        self.lock, self.waiting = threading.Condition(), set[int]()
        self.turn: int | None = None
        self.there = 0

    def step(self, me: int) -> None:
        """Wait for this thread's turn."""
        with self.lock:
            self.waiting.add(me)
            self.lock.notify_all()
            self.lock.wait_for(lambda: self.turn == me)
            self.turn = None
            self.waiting.discard(me)

    def gone(self) -> None:
        """Remove a thread."""
        with self.lock:
            self.there -= 1
            self.lock.notify_all()


class Controller:
    """The relevant part of slurmctld: each change is one step, and a held job does not start."""

    def __init__(self, seed: int) -> None:
        self.states = dict.fromkeys(GROUP, "PENDING")
        self.held, self.ran, self.turns = set[int](), list[int](), Turns(seed)

    def start(self, number: int) -> None:
        """The scheduler's step."""
        self.states[number] = "RUNNING"

    def door(self, me: int) -> "Door":
        """Return one job's connection."""
        return Door(self, me)


class Door(FakeSlurm):
    """One job's connection. After each step another job may run."""

    def __init__(self, controller: Controller, me: int) -> None:
        super().__init__()
        self.controller, self.me = controller, me

    def _turn(self) -> None:
        self.controller.turns.step(self.me)
        if self.controller.states[self.me] == "CANCELLED":  # Slurm ends its script
            raise SystemExit

    def hold(self, job_id: int) -> None:
        """Hold a job, also a running one. Refuse ended ones."""
        self._turn()
        if self.controller.states[job_id] == "CANCELLED":
            raise SlurmError("Job has already finished")
        self.controller.held.add(job_id)

    def release(self, job_id: int) -> None:
        """Release a job."""
        self._turn()
        self.controller.held.discard(job_id)

    def cancel(self, job_id: int) -> None:
        """Cancel immediately."""
        self._turn()
        self.controller.states[job_id] = "CANCELLED"

    def jobs(self, job_ids: Sequence[int] | None = None) -> Mapping[int, Job]:
        """Return all requested jobs."""
        self._turn()
        states, held = self.controller.states, self.controller.held
        return {
            each: job(each, state=states[each], reason="JobHeldUser" if each in held else "") for each in job_ids or ()
        }


def test_whatever_the_order() -> None:
    """One program runs, in every order of starts and steps. Every other job is gone, and none stays held."""
    for seed in range(200):
        controller = claimed(seed)
        assert len(controller.ran) == 1, seed
        assert controller.states == dict.fromkeys(GROUP, "CANCELLED") | {controller.ran[0]: "RUNNING"}, seed
        assert controller.ran[0] not in controller.held, seed


def claimed(seed: int) -> Controller:
    """Return the result for the group in one order."""
    controller = Controller(seed)
    turns = controller.turns

    def script(me: int) -> None:
        try:
            turns.step(me)
            if any_of.claim(controller.door(me), me, [each for each in GROUP if each != me], Quick()):
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
    return controller
