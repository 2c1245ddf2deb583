"""A job with alternatives (`any_of`): they wait in the queue together, and of those that start one runs.

Each that starts keeps the others from starting (Slurm's hold, which slurmctld does or refuses as one step), and then
looks at them all. Whoever started before that hold is running now, and sees us as well: the lowest number of those goes
on and cancels the rest. Whoever is held can start no more, so nobody new comes in between.

A hold of a running job changes nothing but what becomes of it after a requeue: the one that goes on is released.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from slurm_plugin import token
from slurm_plugin.job.launch import Launcher
from slurm_plugin.job.log import say
from slurm_plugin.slurm import ENDED, HELD, Job, Slurm, SlurmAwayError, SlurmError
from slurm_plugin.slurm.patience import Patience

AWAY_S: Final = 300.0  # a slurmctld that restarts or fails over
GONE_S, LOOK_S = 60.0, 1.0  # for how long, and how often, the winner looks whether the others are gone
WAITING: Final = frozenset({"PENDING", "REQUEUE_HOLD", "SPECIAL_EXIT"})
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
    patience = Patience(AWAY_S, say, sleep=launcher.pause, give_up=lambda: launcher.told_to_end)
    try:
        asked = token.find(patience.ask(lambda: door.job(me), repeatable=True).comment)
        others = [number for number in asked.any_of if number != me] if asked else []
        return claim(door, me, others, launcher) if others else True
    except SlurmError as error:
        say(f"error,exiting: nobody can tell which of the jobs that were submitted together (any_of) runs: {error}")
        return False


def claim(door: Slurm, me: int, others: Sequence[int], launcher: Launcher) -> bool:
    """Whether this job is the one that runs; the others are cancelled then. Where it is not, it is cancelled itself.

    Raises SlurmError where no controller can be asked, as then nobody knows.
    """
    patience = Patience(AWAY_S, say, sleep=launcher.pause, give_up=lambda: launcher.told_to_end)

    def tried(change: Callable[[int], None], job_id: int) -> None:
        """A change that Slurm may refuse: the job has started or ended meanwhile, and the next look shows it."""
        try:
            patience.ask(lambda: change(job_id), repeatable=True)
        except SlurmAwayError:
            raise
        except SlurmError:
            pass

    def looked() -> Mapping[int, Job]:
        return patience.ask(lambda: door.jobs([me, *others]), repeatable=True)

    for other in others:
        tried(door.hold, other)
    winner = lost_to(me, looked())
    if winner is not None:
        tried(door.release, winner)  # its prolog may fail yet, and it is put back then
        say(f"job {winner} runs in the place of this one, with which it was submitted (any_of); this one is cancelled")
        tried(door.cancel, me)
        return False
    for other in others:
        tried(door.cancel, other)
    say(f"this job runs; cancelled: {', '.join(map(str, others))}, with which it was submitted (any_of)")
    left, jobs = GONE_S, looked()
    while left > 0 and not launcher.told_to_end and any(_is_there(jobs, other) for other in others):
        launcher.pause(LOOK_S)
        left, jobs = left - LOOK_S, looked()
    if me in jobs and jobs[me].reason.startswith(HELD):
        with suppress(SlurmError):
            door.release(me)
    return not launcher.told_to_end


def _is_there(jobs: Mapping[int, Job], job_id: int) -> bool:
    return job_id in jobs and jobs[job_id].state not in ENDED
