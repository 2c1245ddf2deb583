"""Requeue a job that has a grant, without its bad nodes. The supervisor does it; if it is lost, a guard does it.

The job's token says which run requests the requeue and which nodes to leave out. SlurmUser's worker on the controller
reads it, counts the restart, changes the job's nodes and lets it start (slurm_plugin.controller.requeue_worker).
"""

from typing import NamedTuple

from hostfiles import nodelist
from slurm_plugin.records import token
from slurm_plugin.slurm import Slurm, SlurmAwayError, SlurmError, releases
from slurm_plugin.supervisor.log import say


def takes_changes(door: Slurm, names: int, had: int) -> bool:
    """Return whether Slurm can change a running job that has `names` nodes now and began with `had` nodes.

    If Slurm cannot, a request takes 5 s and fails, so callers do not send it. The next run reports the restarts.
    """
    if names >= had:
        return True
    try:
        config = door.config()
    except SlurmError:
        return True
    known = releases.of(config.get("SLURM_VERSION") or "")
    return not (
        known and known.lost_node_bars_changes and config.get("AccountingStorageType") != "accounting_storage/slurmdbd"
    )


class Request(NamedTuple):
    """What the worker on the controller reads of a requeue."""

    restart: int  # the run that ends
    leave_out: tuple[str, ...]
    again: int = 0  # restarts inside allocations
    grow: bool = False  # whether the job is requeued for more nodes
    moved: bool = False  # whether the next run gets none of this run's nodes


def mark(door: Slurm, job_id: int, request: Request) -> bool:
    """Write the request into the token of the job's comment. Return False if a later run has begun.

    Raise SlurmAwayError, and ValueError for a comment without a token.
    """
    job = door.job(job_id)
    if job.restarts > request.restart:
        return False
    names = nodelist.expand(job.nodes) if job.nodes else []
    # `names` has the nodes at the end of the run. Slurm has already removed lost nodes and will not use them.
    places = tuple(names.index(name) for name in request.leave_out if name in names)
    written = token.Mark(request.restart, places, request.grow, request.moved)
    comment = token.update(job.comment, again=request.again, mark=written)
    before = token.find(job.comment)
    had = before.had.nodes if before and before.had and before.had.run == request.restart else 0
    if not takes_changes(door, len(names), had):  # from `had` the controller's worker sees the loss of a node
        return True
    try:
        door.update_job(job_id, Comment=comment)
    except SlurmAwayError:
        raise
    except SlurmError as error:
        say(f"could not mark the job: {error.one_line}")
    return True


def requeue(door: Slurm, job_id: int, request: Request) -> bool:
    """Mark the job and requeue it. Return False if a later run has begun: an earlier request may have succeeded.

    Raise SlurmError, and ValueError for a comment without a token.
    """
    if not mark(door, job_id, request):
        return False
    door.requeue(job_id)
    return True
