"""Putting a job back into the queue: marked with the nodes to leave out, once, by whoever is left to do it."""

import signal
from typing import Final

from hostfiles import nodelist
from slurm_plugin import token
from slurm_plugin.slurm import Job, Slurm, SlurmAwayError, SlurmError

_IGNORED: Final = (signal.SIGTERM, signal.SIGINT)  # what Slurm ends this process with, before SIGKILL


def mark(door: Slurm, job_id: int, restart: int, leave_out: tuple[str, ...], again: int = 0) -> None:
    """Mark the job's comment, for a requeue that Slurm is about to make. Raises as `put_back`."""
    job = door.job(job_id)
    try:
        door.update_job(job_id, Comment=_marked(job, restart, leave_out, again))
    except SlurmAwayError:
        raise
    except SlurmError:  # see put_back
        return


def put_back(door: Slurm, job_id: int, restart: int, leave_out: tuple[str, ...], again: int = 0) -> bool:
    """Mark the job's comment with this run, its restarts in place and the nodes to leave out, then requeue it.

    False where a later run has begun: a request whose answer was lost may have been granted. Raises SlurmError, and
    ValueError for a comment without a token.
    """
    job = door.job(job_id)
    if job.restarts > restart:
        return False
    comment = _marked(job, restart, leave_out, again)
    try:
        door.update_job(job_id, Comment=comment)
    except SlurmAwayError:
        raise
    except SlurmError:
        # 22.05 without slurmdbd changes nothing of a job that has lost a node, until it is requeued ("the DB index is
        # being set"). It stays COMPLETING for a while then, and nobody reads the mark before that is over.
        for number in _IGNORED:
            signal.signal(number, signal.SIG_IGN)
        door.requeue(job_id)
        door.update_job(job_id, Comment=comment)
        return True
    door.requeue(job_id)
    return True


def _marked(job: Job, restart: int, leave_out: tuple[str, ...], again: int) -> str:
    """The job's comment, marked. The nodes are named as the run's end will: without those taken out of the job."""
    names = nodelist.expand(job.nodes) if job.nodes else []
    places = tuple(names.index(name) for name in leave_out if name in names)
    return token.marked(token.counted(job.comment, again=again), token.Mark(restart, places))
