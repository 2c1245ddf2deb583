"""A job with alternatives (`any_of`): they wait in the queue together, and of those that start one runs.

Each that starts keeps the others from starting (Slurm's hold, which slurmctld does or refuses as one step), and then
looks at them all. Whoever started before that hold is running now, and sees us as well: the lowest number of those goes
on and cancels the rest. Whoever is held can start no more, so nobody new comes in between.

A hold of a running job changes nothing but what becomes of it after a requeue: the one that goes on is released.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from slurm_plugin import after_run, token
from slurm_plugin.job import controller
from slurm_plugin.job.launch import Launcher
from slurm_plugin.job.log import say
from slurm_plugin.slurm import ENDED, HELD, Job, Slurm, SlurmAwayError, SlurmError
from slurm_plugin.slurm.patience import Patience

AWAY_S: Final = 86400.0
GONE_S, LOOK_S = 60.0, 1.0  # for how long, and how often, the winner looks whether the others are gone
WAITING: Final = after_run.WAITING - {"EXPEDITING"}  # which Slurm starts by itself, at once
LOSER: Final = 143  # 128 + SIGTERM, by which Slurm ends it


def lost_to(me: int, jobs: Mapping[int, Job]) -> int | None:
    """The job that runs in the place of `me`; None where `me` is the one.

    A state that cannot be read counts as running. One that is COMPLETING has lost as well, or ended before its program.
    """
    running = [number for number, job in jobs.items() if job.state not in {*ENDED, *WAITING, "COMPLETING"}]
    first = min((*running, me))
    return None if first == me else first


def is_mine(door: Slurm, me: int, launcher: Launcher) -> bool:
    """Whether this job is the one of those in its comment that runs; False as well where nobody can tell."""
    try:
        asked = token.find(_patience(launcher).ask(lambda: door.job(me), repeatable=True).comment)
        others = [number for number in asked.any_of if number != me] if asked else []
        return claim(door, me, others, launcher) if others else True
    except SlurmError as error:
        say(f"error,exiting: nobody can tell which of the jobs that were submitted together (any_of) runs: {error}")
        return False


def claim(door: Slurm, me: int, others: Sequence[int], launcher: Launcher) -> bool:
    """Whether this job is the one that runs; the others are cancelled then. Where it is not, it is cancelled itself.

    Raises SlurmError where nobody can tell: no controller answers, or one of the others cannot be kept from starting.
    """
    group = _Group(door, me, others, launcher)
    winner = lost_to(me, group.all_kept())
    if winner is not None:
        # Its prolog may fail yet, and it is put back then; or it never runs. One with a higher number gives way to it.
        for job_id in (number for number in others if number >= winner):
            group.tried(door.release, job_id)
        say(f"job {winner} runs in the place of this one, with which it was submitted (any_of); this one is cancelled")
        group.tried(door.cancel, me)
        return False
    say(f"this job runs, and not those with which it was submitted (any_of): {', '.join(map(str, others))}")
    if left := group.cancelled():
        say(f"could not cancel {left}, which wait(s) on hold; do it with: scancel {left}")
    return not launcher.told_to_end


class _Group:
    """The jobs of which one is to run, through one door."""

    def __init__(self, door: Slurm, me: int, others: Sequence[int], launcher: Launcher) -> None:
        self._door, self._me, self._others, self._launcher = door, me, others, launcher
        self._patience = _patience(launcher)

    def all_kept(self) -> Mapping[int, Job]:
        """The jobs, seen when each of the others that waits is held. Raises SlurmError where one cannot be."""
        left, wanting = GONE_S, set(self._others)
        while True:
            refused = {each for each in wanting if not self.tried(self._door.hold, each)}
            jobs = self._looked()
            wanting = {each for each in refused if each in jobs and jobs[each].state in WAITING}
            if not wanting:
                return jobs
            if left <= 0 or self._launcher.told_to_end:
                raise SlurmError(
                    f"job {min(wanting)} cannot be kept from starting\n  see: scontrol show job {min(wanting)}"
                )
            self._launcher.pause(LOOK_S)
            left -= LOOK_S

    def cancelled(self) -> str:
        """Cancel the others, and undo what they have done to this one; those that are still there, with commas."""
        left = GONE_S
        while True:
            for other in self._others:
                self.tried(self._door.cancel, other)
            jobs = self._looked()
            there = [number for number, job in jobs.items() if number != self._me and job.state not in ENDED]
            if not there or left <= 0 or self._launcher.told_to_end:
                break
            self._launcher.pause(LOOK_S)
            left -= LOOK_S
        if self._me in jobs and jobs[self._me].reason.startswith(HELD):
            self.tried(self._door.release, self._me)
        return ",".join(map(str, there))

    def tried(self, change: Callable[[int], None], job_id: int) -> bool:
        """Whether Slurm made a change. It refuses where the job has started or ended meanwhile, among others."""
        try:
            self._patience.ask(lambda: change(job_id), repeatable=True)
        except SlurmAwayError:
            raise
        except SlurmError:
            return False
        return True

    def _looked(self) -> Mapping[int, Job]:
        return self._patience.ask(lambda: self._door.jobs([self._me, *self._others]), repeatable=True)


def _patience(launcher: Launcher) -> Patience:
    """For as long as this job may run: without a slurmctld no other one can start."""
    return controller.patience(launcher, AWAY_S)
