"""Taking a node out and bringing it back: once, with a reason that names the items, never over what an administrator
wrote, and never more nodes than the site's cap."""

from __future__ import annotations

import syslog
import time
from collections.abc import Mapping

from prechecks import CHECKS, seen
from prechecks.report import JOBS, OURS
from slurm_plugin import cap
from slurm_plugin.hooks import notify
from slurm_plugin.slurm import UNKNOWN, Node, Slurm, SlurmError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from prechecks import Context

MOST_JOBS = 8  # named in one reason
# What Slurm or an administrator is about to do with a node: the periodic check leaves it alone.
LEFT_ALONE = frozenset(
    {
        "FAIL", "FAILING", "MAINT", "MAINTENANCE", "PLANNED", "POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN",
        "POWERING_UP", "POWER_UP", "REBOOT", "REBOOT_ISSUED", "REBOOT_REQUESTED", "RESERVED", UNKNOWN,
    }
)  # fmt: skip
# In the state directory: why we drained this node and what it was looked at for; why it should have been drained.
MARKER, OWED = "drained", "owed"


def may_drain(node: Node) -> bool:
    """Whether we may write this node's reason: its state was read, and nobody else's reason stands there."""
    return UNKNOWN not in node.states and (not node.standing_reason or node.standing_reason.startswith(OURS))


def joined(reason: str, before: str) -> str:
    """`reason` naming also the jobs of our reason before it: jobs that share a node all find their name in it."""
    jobs = dict.fromkeys((*JOBS.findall(before), *JOBS.findall(reason)))
    return JOBS.sub("", reason) + "".join(tuple(jobs)[-MOST_JOBS:])


def drain(door: Slurm, site: Mapping[str, Any], context: Context, reason: str) -> bool:
    """Drain this node; whether it is out of service now, by us or by somebody else.

    An event that did not drain it, and that no later look will see, is owed: the next periodic check tries again.
    It stays in service, which is logged, on a site's dry run, where as many are out as may be, where its state cannot
    be read, and where Slurm does not answer: a cap that cannot be looked at may be reached.
    """
    out = _drained(door, site, context, reason)
    events = {check.item.replace(".", " ") for check in CHECKS if check.event}
    parts = JOBS.sub("", reason).removeprefix(OURS).split("; ")
    owed = "; ".join(part for part in parts if part.partition(": ")[0] in events)
    if owed:
        _keep(site, OWED, {"reason": "" if out else f"{OURS}{owed}"})
    return out


def _drained(door: Slurm, site: Mapping[str, Any], context: Context, reason: str) -> bool:
    name = context.node
    if site["dry_run"]:
        syslog.syslog(syslog.LOG_WARNING, f"dry run: {name} would be drained: {reason}")
        return False
    try:
        node = door.nodes([name]).get(name)
        if node is None or UNKNOWN in node.states:
            syslog.syslog(syslog.LOG_ERR, f"{name} stays in service, its state cannot be read; found: {reason}")
            return False
        if not may_drain(node):
            syslog.syslog(syslog.LOG_ERR, f"{name} keeps its own reason; found: {reason}")
            return True
        if context.hook == "periodic" and node.states & LEFT_ALONE:
            syslog.syslog(syslog.LOG_ERR, f"{name} is {'+'.join(sorted(node.states))}, and left alone; found: {reason}")
            return False
        if not cap.is_out(node) and (why := _claim(door, node, site["drain_cap"])):
            syslog.syslog(syslog.LOG_ALERT, f"{name} stays in service: {why}; found: {reason}")
            notify.tell(site["notify"], "not-drained", name, f"{why}; found: {reason}")
            return False
        _drain(door, site, context, node, joined(reason, node.standing_reason))
    except SlurmError as error:
        syslog.syslog(syslog.LOG_ERR, f"could not drain {name} ({reason}): {error}")
        return False
    return True


def _claim(door: Slurm, node: Node, share: float) -> str:
    """Claim a place among the nodes that may be out; why there is none."""
    now = time.time()
    door.update_node(node.name, Comment=cap.claimed(node.comment, now))
    try:
        why = cap.full(door.nodes([]), node.name, share, now)
    except SlurmError:
        why = "Slurm did not say how many nodes are out"
    if why:
        door.update_node(node.name, Comment=cap.unclaimed(node.comment))
    return why


def _drain(door: Slurm, site: Mapping[str, Any], context: Context, node: Node, reason: str) -> None:
    mark(site, reason, context)  # first: a drain that nobody remembers is never undone
    door.drain(node.name, reason)
    syslog.syslog(syslog.LOG_ERR, f"drained {node.name}: {reason}")
    notify.tell(site["notify"], "drained", node.name, reason)
    if not cap.is_out(node):
        door.update_node(node.name, Comment=cap.unclaimed(node.comment))


def resume(door: Slurm, site: Mapping[str, Any], node: Node) -> None:
    """Bring a node back that is out for a reason of ours, and take that reason away. Raises SlurmError."""
    name, reason = node.name, node.standing_reason
    if site["dry_run"]:
        syslog.syslog(syslog.LOG_WARNING, f"dry run: {name} would be resumed; it was drained for: {reason}")
        return
    door.resume(name)
    syslog.syslog(f"resumed {name}; it was drained for: {reason}")
    notify.tell(site["notify"], "resumed", name, reason)
    left = door.nodes([name]).get(name)
    if left and left.reason.startswith(OURS):  # 24.11 keeps it, and every release on a node that was busy
        door.update_node(name, Reason=" ")  # an empty one changes nothing there


def mark(site: Mapping[str, Any], reason: str, context: Context, *, earlier: bool = False) -> None:
    """Remember on this node that we drained it, and for what; an empty reason: that we did not.

    `earlier`: that was before this boot.
    """
    facts = {"reason": reason, "gpus": list(context.gpus), "infiniband": context.infiniband, "earlier": earlier}
    _keep(site, MARKER, facts)


def _keep(site: Mapping[str, Any], item: str, facts: Mapping[str, Any]) -> None:
    try:
        seen.save(site["prechecks"]["state"], item, facts)
    except OSError as error:
        syslog.syslog(syslog.LOG_ERR, f"what was done with this node cannot be remembered: {error}")
