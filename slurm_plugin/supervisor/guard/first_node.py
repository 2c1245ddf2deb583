"""Guards watch the first node of a job, which has its supervisor, and requeue the job when that node is lost.

Without `--no-kill` Slurm requeues the job. Where slurm_plugin is not installed, a guard then lets it start soon. Not
all guards watch it, and they ask Slurm one after another, so a large job does not flood the controller.
"""

from collections.abc import Callable

from hostfiles import nodelist
from slurm_plugin.records import grant
from slurm_plugin.slurm import Slurm, SlurmError
from slurm_plugin.supervisor.requeue import by_owner, with_grant

FIRST_NODE_CHECK_S = 15.0
FIRST_NODE_CHECKS = 240  # an hour: SlurmdTimeout is minutes
FIRST_WATCHER = 1  # the guard of the first node is number 0
WATCHERS = 8  # guards that watch for the loss of the first node, spread over the job because whole racks fail
WATCHERS_APART_S = 5.0


def watcher_place(index: int, nodes: int) -> int | None:
    """Return a guard's number among the guards that watch the first node; None if the guard does not watch it."""
    apart = max(1, nodes // WATCHERS)
    return index // apart if index % apart == 0 or index == nodes - 1 else None


def requeue_orphan(
    job_id: int,
    restart: int,
    first: str,
    place: int,
    door: Slurm,
    *,
    plan: by_owner.Plan,
    ending: bool = False,
    pause: Callable[[float], bool] = by_owner.until_sigterm,
) -> bool:
    """Requeue the job when Slurm also reports its first node as lost. Return whether this process did it.

    Slurm removes a dead node from a job with `--no-kill`, even the batch host. The other nodes would stay RUNNING until
    the time limit. So a guard whose lease has ended requeues the job, with the mark that the supervisor would set.

    `ending`: whether Slurm is ending the job here; `pause` also returns that. One watcher then changes a job that Slurm
    has requeued, if its owner restarts it. The others end, or the job would stay COMPLETING.
    """
    ending = ending or pause(place * WATCHERS_APART_S)
    for _ in range(FIRST_NODE_CHECKS):
        if ending and place != FIRST_WATCHER:
            return False
        try:
            job = door.job(job_id)
            alone = grant.is_alone(job, plan.retries)
            if alone and job.restarts == restart + 1 and job.state in by_owner.WAITING:
                by_owner.requeue_orphan(door, job, first, plan)
                return True
            if ending or job.state != "RUNNING" or job.restarts != restart or not (plan.no_kill or alone):
                return False
            names = nodelist.expand(job.nodes) if job.nodes else []
            if plan.no_kill and (first not in names or "DOWN" in door.nodes([first])[first].states):
                if alone:
                    by_owner.requeue_orphan(door, job, first, plan)
                    return True
                try:
                    return with_grant.requeue(door, job_id, with_grant.Request(restart, (first,)))
                except ValueError:  # a user edited the comment: no mark, but Slurm knows that the node is down
                    door.requeue(job_id)
                    return True
        except (SlurmError, ValueError, KeyError):  # Slurm is away, or this node is the one that is cut off
            pass
        ending = pause(FIRST_NODE_CHECK_S)
    return False
