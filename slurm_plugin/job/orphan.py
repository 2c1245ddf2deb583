"""A job whose batch host is gone, and which Slurm keeps (`--no-kill`): nobody is left to end it but its other nodes.

Slurm takes a dead node out of such a job, the one with the batch script like any other, and the rest would sit there
RUNNING until the time limit. A guard whose lease ran out asks Slurm, and once Slurm agrees that the first node is gone
it has the job requeued, marked as the supervisor would have done.
"""

import time
from collections.abc import Callable
from typing import Final

from hostfiles import nodelist
from slurm_plugin.job.putback import put_back
from slurm_plugin.slurm import Slurm, SlurmError

LOOK_S: Final = 15.0
LOOKS: Final = 240  # an hour: SlurmdTimeout is minutes
WATCHERS: Final = (
    8  # guards that look, each a little later than the one before, from all over the job: racks fail whole
)
APART_S: Final = 5.0


def place(index: int, nodes: int) -> int | None:
    """The turn of a guard among those that look; None for one that does not."""
    apart = max(1, nodes // WATCHERS)
    return index // apart if index % apart == 0 or index == nodes - 1 else None


def look_after(
    job_id: int, restart: int, first: str, index: int, door: Slurm, *, sleep: Callable[[float], None] = time.sleep
) -> bool:
    """Have the job requeued once its first node is gone; whether this process did it."""
    sleep(index * APART_S)
    for _ in range(LOOKS):
        try:
            job = door.job(job_id)
            if job.state != "RUNNING" or job.restarts != restart:
                return False
            names = nodelist.expand(job.nodes) if job.nodes else []
            if first not in names or "DOWN" in door.nodes([first])[first].states:
                try:
                    return put_back(door, job_id, restart, (first,))
                except ValueError:  # its comment was edited: without a mark, its node that is down speaks for it
                    door.requeue(job_id)
                    return True
        except (SlurmError, ValueError, KeyError):  # away, or this node is the one that is cut off
            pass
        sleep(LOOK_S)
    return False
