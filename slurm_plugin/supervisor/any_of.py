"""A job with alternatives (`any_of`): jobs that wait in the queue together, of which one runs.

A job that starts holds all other jobs, then reads the states of all. slurmctld applies or refuses a hold in one step. A
job that started before its hold is running and does the same. Of these jobs, the one with the lowest number goes on and
cancels the rest. Held jobs cannot start, so they cannot become contenders.

A hold of a running job takes effect only after a requeue. So the job that goes on is released.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from slurm_plugin.records import token
from slurm_plugin.slurm import ENDED, HELD, WAITING, Job, Slurm, SlurmAwayError, SlurmError
from slurm_plugin.supervisor import queries
from slurm_plugin.supervisor.launcher import Launcher
from slurm_plugin.supervisor.log import say

AWAY_S: Final = 86400.0  # a day: no other job can start while slurmctld is away
GONE_S, LOOK_S = 60.0, 1.0  # how long, and how often, the winner checks whether the others have ended
STARTABLE: Final = WAITING - {"EXPEDITING"}  # Slurm starts an expedited job immediately, hold or not
LOSER: Final = 143  # 128 + SIGTERM, the signal with which Slurm ends the job


def lost_to(me: int, jobs: Mapping[int, Job]) -> int | None:
    """Return the job that runs instead of `me`; None if `me` runs.

    A job in an unknown state may be running. A COMPLETING job has lost, too, or ended before its program started.
    """
    running = [number for number, job in jobs.items() if job.state not in {*ENDED, *STARTABLE, "COMPLETING"}]
    first = min((*running, me))
    return None if first == me else first


def is_mine(door: Slurm, me: int, launcher: Launcher) -> bool:
    """Return whether this job is the one that runs, of all jobs in its comment. Return False if that is unknown."""
    try:
        asked = token.find(queries.patience(launcher, AWAY_S).ask(lambda: door.job(me), repeatable=True).comment)
        others = [number for number in asked.any_of if number != me] if asked else []
        return claim(door, me, others, launcher) if others else True
    except SlurmError as error:
        say(f"error,exiting: it is unknown which of the jobs that were submitted together (any_of) runs: {error}")
        return False


def claim(door: Slurm, me: int, others: Sequence[int], launcher: Launcher) -> bool:
    """Return whether this job is the one that runs. If it is, cancel the others, else cancel this job.

    Raise SlurmError if that is unknown: no controller answers, or another job cannot be held.
    """
    group = _Group(door, me, others, launcher)
    winner = lost_to(me, group.all_held())
    if winner is not None:
        # The prolog of the winner may still fail. Jobs with a higher number must be free to start then.
        for job_id in (number for number in others if number >= winner):
            group.applied(door.release, job_id)
        say(f"job {winner} runs in the place of this one, with which it was submitted (any_of); this one is cancelled")
        group.applied(door.cancel, me)
        return False
    say(f"this job runs, and not those with which it was submitted (any_of): {', '.join(map(str, others))}")
    if left := group.cancelled():
        say(f"could not cancel {left}, which wait(s) on hold; do it with: scancel {left}")
    return not launcher.told_to_end


class _Group:
    """The jobs of which one runs, and the `Slurm` to control them."""

    def __init__(self, door: Slurm, me: int, others: Sequence[int], launcher: Launcher) -> None:
        self._door, self._me, self._others, self._launcher = door, me, others, launcher
        self._patience = queries.patience(launcher, AWAY_S)

    def all_held(self) -> Mapping[int, Job]:
        """Hold each other job that waits, then return all jobs. Raise SlurmError if one cannot be held."""
        left, wanting = GONE_S, set(self._others)
        while True:
            refused = {each for each in wanting if not self.applied(self._door.hold, each)}
            jobs = self._jobs()
            wanting = {each for each in refused if each in jobs and jobs[each].state in STARTABLE}
            if not wanting:
                return jobs
            if left <= 0 or self._launcher.told_to_end:
                raise SlurmError(
                    f"job {min(wanting)} cannot be kept from starting\n  see: scontrol show job {min(wanting)}"
                )
            self._launcher.pause(LOOK_S)
            left -= LOOK_S

    def cancelled(self) -> str:
        """Cancel the other jobs, and release this job if it is held. Return the jobs that did not end, with commas."""
        left = GONE_S
        while True:
            for other in self._others:
                self.applied(self._door.cancel, other)
            jobs = self._jobs()
            there = [number for number, job in jobs.items() if number != self._me and job.state not in ENDED]
            if not there or left <= 0 or self._launcher.told_to_end:
                break
            self._launcher.pause(LOOK_S)
            left -= LOOK_S
        if self._me in jobs and jobs[self._me].reason.startswith(HELD):
            self.applied(self._door.release, self._me)
        return ",".join(map(str, there))

    def applied(self, change: Callable[[int], None], job_id: int) -> bool:
        """Make a change, and return whether Slurm accepted it. Slurm may refuse it after the job started or ended."""
        try:
            self._patience.ask(lambda: change(job_id), repeatable=True)
        except SlurmAwayError:
            raise
        except SlurmError:
            return False
        return True

    def _jobs(self) -> Mapping[int, Job]:
        return self._patience.ask(lambda: self._door.jobs([self._me, *self._others]), repeatable=True)
