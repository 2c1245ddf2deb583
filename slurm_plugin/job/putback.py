"""Putting a job back into the queue: marked with the nodes to leave out, once, by whoever is left to do it."""

from hostfiles import nodelist
from slurm_plugin import token
from slurm_plugin.job.log import say
from slurm_plugin.slurm import Slurm, SlurmAwayError, SlurmError


def mark(door: Slurm, job_id: int, restart: int, leave_out: tuple[str, ...], again: int = 0) -> bool:
    """Mark the job's comment with this run, its restarts in place and the nodes to leave out.

    False where a later run has begun. Raises SlurmAwayError, and ValueError for a comment without a token.
    """
    job = door.job(job_id)
    if job.restarts > restart:
        return False
    names = nodelist.expand(job.nodes) if job.nodes else []
    # As the run's end will name them: without those that Slurm has taken out of the job, and will not use anyway.
    places = tuple(names.index(name) for name in leave_out if name in names)
    comment = token.marked(token.counted(job.comment, again=again), token.Mark(restart, places))
    try:
        door.update_job(job_id, Comment=comment)
    except SlurmAwayError:
        raise
    except SlurmError as error:
        # 22.05 without slurmdbd changes nothing of a job that has lost a node ("the DB index is being set"). Then the
        # worker knows from `had` that it has lost one.
        say(f"could not mark the job: {error.one_line}")
    return True


def put_back(door: Slurm, job_id: int, restart: int, leave_out: tuple[str, ...], again: int = 0) -> bool:
    """Mark the job and requeue it. False where a later run has begun: a request whose answer was lost may have been
    granted. Raises SlurmError, and ValueError for a comment without a token.
    """
    if not mark(door, job_id, restart, leave_out, again):
        return False
    door.requeue(job_id)
    return True
