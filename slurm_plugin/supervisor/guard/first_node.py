"""Guards watch the first node of a job that Slurm keeps without it (`--no-kill`), and requeue the job when it is lost.

Not all guards watch it, and they ask Slurm one after another, so a large job does not flood the controller.
"""

import time
from collections.abc import Callable
from pathlib import Path

from hostfiles import nodelist
from slurm_plugin.records import grant, job_directory
from slurm_plugin.slurm import Slurm, SlurmError
from slurm_plugin.supervisor.guard import by_owner, handover

FIRST_NODE_CHECK_S = 15.0
FIRST_NODE_CHECKS = 240  # an hour: SlurmdTimeout is minutes
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
    directory: str = "",
    cluster: str = "",
    plan: by_owner.Plan = by_owner.Plan(),  # noqa: B008 - it is immutable
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Requeue the job when Slurm also reports its first node as lost. Return whether this process did it.

    Slurm removes a dead node from a job with `--no-kill`, even the batch host. The other nodes would stay RUNNING until
    the time limit. So a guard whose lease has ended requeues the job, with the mark that the supervisor would set.
    """
    sleep(place * WATCHERS_APART_S)
    for _ in range(FIRST_NODE_CHECKS):
        try:
            job = door.job(job_id)
            if job.state != "RUNNING" or job.restarts != restart:
                return False
            names = nodelist.expand(job.nodes) if job.nodes else []
            if first not in names or "DOWN" in door.nodes([first])[first].states:
                if grant.is_alone(job, plan.retries):
                    lines = job_directory.attempts(Path(directory), cluster) or []
                    by_owner.requeue_orphan(door, job, first, lines, plan)
                    return True
                try:
                    return handover.put_back(door, job_id, restart, (first,))
                except ValueError:  # a user edited the comment: no mark, but Slurm knows that the node is down
                    door.requeue(job_id)
                    return True
        except (SlurmError, ValueError, KeyError):  # Slurm is away, or this node is the one that is cut off
            pass
        sleep(FIRST_NODE_CHECK_S)
    return False
