"""Taking a node out: once, with a reason that names the items, never over what an administrator wrote."""

import syslog

from slurm_plugin.slurm import UNKNOWN, Node, Slurm, SlurmError

OURS = "slurm_plugin: "


def may_drain(node: Node | None) -> bool:
    """Whether we may write this node's reason: its state was read, and nobody else's reason stands there."""
    return node is not None and UNKNOWN not in node.states and (not node.reason or node.reason.startswith(OURS))


def drain(door: Slurm, name: str, reason: str) -> None:
    """Drain a node unless its state cannot be read or its reason is somebody else's; a refusal is logged."""
    try:
        if may_drain(door.nodes([name]).get(name)):
            door.drain(name, reason)
            syslog.syslog(syslog.LOG_ERR, f"drained {name}: {reason}")
        else:
            syslog.syslog(syslog.LOG_ERR, f"{name} keeps its own reason; found: {reason}")
    except SlurmError as error:
        syslog.syslog(syslog.LOG_ERR, f"could not drain {name} ({reason}): {error}")
