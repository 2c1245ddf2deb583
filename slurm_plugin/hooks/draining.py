"""Taking a node out: once, with a reason that names the items, never over what an administrator wrote."""

import syslog

from prechecks.report import JOBS, OURS
from slurm_plugin.slurm import UNKNOWN, Node, Slurm, SlurmError

MOST_JOBS = 8  # named in one reason


def may_drain(node: Node) -> bool:
    """Whether we may write this node's reason: its state was read, and nobody else's reason stands there."""
    return UNKNOWN not in node.states and (not node.standing_reason or node.standing_reason.startswith(OURS))


def joined(reason: str, before: str) -> str:
    """`reason` naming also the jobs of our reason before it: jobs that share a node all find their name in it."""
    jobs = dict.fromkeys((*JOBS.findall(before), *JOBS.findall(reason)))
    return JOBS.sub("", reason) + "".join(tuple(jobs)[-MOST_JOBS:])


def drain(door: Slurm, name: str, reason: str) -> None:
    """Drain a node unless its state cannot be read or its reason is somebody else's; a refusal is logged."""
    try:
        node = door.nodes([name]).get(name)
        if node and may_drain(node):
            door.drain(name, joined(reason, node.standing_reason))
            syslog.syslog(syslog.LOG_ERR, f"drained {name}: {reason}")
        else:
            syslog.syslog(syslog.LOG_ERR, f"{name} keeps its own reason; found: {reason}")
    except SlurmError as error:
        syslog.syslog(syslog.LOG_ERR, f"could not drain {name} ({reason}): {error}")
