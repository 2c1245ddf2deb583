"""Decide whether a job that runs on fewer nodes than it wants should be requeued to run on more. Pure.

The job grows if all of this holds:

- nodes like its own have been idle and in service for the whole time `grow`;
- no other job waits for nodes of their partitions. Whether such a job could use these very nodes only Slurm knows, so
  every waiting job counts, except one that is held or whose time has not come;
- the program has just written a checkpoint;
- the gain exceeds the cost: TIME LEFT x MORE NODES > COST x ALL NODES. The cost is the time from this attempt's start
  to its first step, and the time since the checkpoint. The first step is read from the log; a program whose steps are
  not known has its first checkpoint instead.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from slurm_plugin.slurm import HELD, WAITING, Job, Listed, Node
from slurm_plugin.slurm.resources import Resources

Machines = Mapping[str, tuple[Node, Resources]]
# Flags of a node that is free for any job. RESERVED and PLANNED nodes are kept for other jobs.
_FREE: Final = frozenset({"IDLE", "CLOUD", "DYNAMIC_NORM", "DYNAMIC_FUTURE"})
_NOT_YET: Final = (*HELD, "Dependency", "JobArrayTaskLimit")  # how squeue's reasons for jobs begin that cannot start


def is_free(node: Node) -> bool:
    """Return whether any job may start on the node."""
    return "IDLE" in node.states <= _FREE


def usable(
    machines: Machines, own: Iterable[str], partition: str, excluded: Iterable[str], *, constrained: bool
) -> list[str]:
    """Return the idle nodes that are at least as good as one of the job's own nodes.

    `partition`: the one in which the job runs. `excluded`: the job's ExcNodeList. `constrained`: the job asks for
    features, so that a node must have all features of one of its own nodes.
    """
    like = [machines[name][1] for name in own if name in machines]
    barred = {*own, *excluded}
    return [
        name
        for name, (node, has) in machines.items()
        if is_free(node)
        and partition in node.partitions
        and name not in barred
        and any(_covers(has, each, constrained=constrained) for each in like)
    ]


def _covers(has: Resources, wanted: Resources, *, constrained: bool) -> bool:
    return (
        has.cpus >= wanted.cpus
        and has.memory_mb >= wanted.memory_mb
        and all(has.has(each.name, each.type) >= wanted.has(each.name, each.type) for each in wanted.devices)
        and (not constrained or {*wanted.features} <= {*has.features})
    )


def waiting_job(jobs: Iterable[Listed], machines: Machines, nodes: Iterable[str]) -> str:
    """Return the id of a job that waits in a partition of these nodes; empty without one."""
    shared = {partition for name in nodes for partition in machines[name][0].partitions}
    waiting = (each.name for each in jobs if _waits(each.job) and shared.intersection(each.job.partition.split(",")))
    return next(waiting, "")


def _waits(job: Job) -> bool:
    """Return whether a job may start soon. A requeued job has the reason BeginTime for up to 121 s."""
    later = job.reason.startswith(_NOT_YET) or (job.reason == "BeginTime" and not job.restarts)
    return job.state in WAITING and not later


def more(has: int, wants: int, lasting: Sequence[str]) -> int:
    """Return how many nodes the job would gain."""
    return max(0, min(wants - has, len(lasting)))


def is_worth(has: int, gain: int, left_s: float, cost_s: float) -> bool:
    """Return whether `gain` more nodes do more in the time left than a restart costs."""
    return left_s * gain > cost_s * (has + gain)
