"""Taking a node out and bringing it back: once, with a reason that names the items, never over what an administrator
wrote, and never more nodes than the site's cap."""

from __future__ import annotations

import syslog
import time
from collections.abc import Mapping

from prechecks import CHECKS
from prechecks.report import JOBS, OURS
from slurm_plugin import cap, remark
from slurm_plugin.errors import SlurmPluginError
from slurm_plugin.hooks import marker, notify
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
# What a reason of ours becomes that Slurm keeps after a RESUME: the one text that it replaces by its next own
# (_drain_node in src/slurmctld/node_mgr.c). An empty one changes nothing on 24.11.
NO_REASON = "Not responding"


def may_drain(node: Node) -> bool:
    """Whether we may write this node's reason: its state was read, and nobody else's reason stands there."""
    return UNKNOWN not in node.states and (not node.standing_reason or node.standing_reason.startswith(OURS))


def parts(reason: str) -> dict[str, str]:
    """What a reason of ours says, by the keyword of the item."""
    found = filter(None, JOBS.sub("", reason).removeprefix(OURS).split("; "))
    return {part.partition(": ")[0]: part for part in found}


def joined(reason: str, before: str) -> str:
    """Both reasons of ours as one: every item, `reason`'s words for those of both, and the jobs of both.

    Jobs that share a node all find their name in it, and what was found before is not forgotten.
    """
    jobs = dict.fromkeys((*JOBS.findall(before), *JOBS.findall(reason)))
    found = {**parts(reason), **{item: part for item, part in parts(before).items() if item not in parts(reason)}}
    return OURS + "; ".join(found.values()) + "".join(tuple(jobs)[-MOST_JOBS:])


def _names(reason: str) -> set[str]:
    """The items and jobs in a reason of ours."""
    return {*parts(reason), *JOBS.findall(reason)}


def drain(door: Slurm, site: Mapping[str, Any], context: Context, reason: str) -> bool:
    """Drain this node; whether it is out of service now, by us or by somebody else.

    It stays in service, which is logged, on a site's dry run, where as many are out as may be, where its state cannot
    be read, and where Slurm does not answer: a cap that cannot be looked at may be reached.
    """
    out = _drained(door, site, context, owing(site, reason))
    if out and marker.owed(site):
        marker.owe(site, "")
    return out


def owing(site: Mapping[str, Any], reason: str) -> str:
    """The reason, with what is owed; what is an event in it, which no later look will see, is owed from now on.

    Whatever ends this hook before Slurm has heard of it, the next periodic check tries again.
    """
    before = marker.owed(site)
    whole = joined(reason, before) if before else reason
    events = {check.item.replace(".", " ") for check in CHECKS if check.event}
    if owed := [part for item, part in parts(whole).items() if item in events]:
        marker.owe(site, OURS + "; ".join(owed))
    return whole


def _drained(door: Slurm, site: Mapping[str, Any], context: Context, reason: str) -> bool:
    name = context.node
    if site["dry_run"]:
        syslog.syslog(syslog.LOG_WARNING, f"dry run: {name} would be drained: {reason}")
        _remark(door, site, context, reason)
        return False
    try:
        node = door.nodes([name]).get(name)
        out = _out_or_not(node, context, reason)
        if out is not None or node is None:
            return bool(out)
        if not cap.is_out(node):
            return _claim_and_drain(door, site, context, node, reason)
        whole = joined(reason, node.standing_reason)
        if _names(whole) != _names(node.standing_reason):  # values change from look to look
            _write(door, site, context, whole)
    except SlurmPluginError as error:
        syslog.syslog(syslog.LOG_ERR, f"could not drain {name} ({reason}): {error.one_line}")
        return False
    return True


def _remark(door: Slurm, site: Mapping[str, Any], context: Context, reason: str) -> None:
    """Say in its Comment that it would be drained, where nothing else keeps it; once, as values change from look to
    look. Remembered before: what nobody remembers stays there for good.
    """
    name, before = context.node, marker.remarked(site)
    whole = joined(reason, before)
    if _names(whole) == _names(before):
        return
    try:
        node = door.nodes([name]).get(name)
        if _out_or_not(node, context, reason) is not None or node is None or cap.is_out(node):
            return
        if not before:
            marker.remark(site, OURS)
        comment = remark.remarked(node.comment, whole)
        if comment != node.comment:
            door.update_node(name, Comment=comment)
        marker.remark(site, whole)
    except SlurmPluginError as error:
        syslog.syslog(syslog.LOG_WARNING, f"the comment of {name} does not say so: {error.one_line}")


def _out_or_not(node: Node | None, context: Context, reason: str) -> bool | None:
    """Whether it is out without our doing; None where it may be drained."""
    name = context.node
    if node is None or UNKNOWN in node.states:
        syslog.syslog(syslog.LOG_ERR, f"{name} stays in service, its state cannot be read; found: {reason}")
        return False
    if not may_drain(node):
        syslog.syslog(syslog.LOG_ERR, f"{name} keeps its own reason; found: {reason}")
        return True
    if context.hook == "periodic" and node.states & LEFT_ALONE:
        syslog.syslog(syslog.LOG_ERR, f"{name} is {'+'.join(sorted(node.states))}, and left alone; found: {reason}")
        return False
    return None


def _claim_and_drain(door: Slurm, site: Mapping[str, Any], context: Context, node: Node, reason: str) -> bool:
    """Claim a place among the nodes that may be out, and drain where there is one. Raises SlurmError.

    The answer that counts the others also says what has become of this node meanwhile.
    """
    name, now = node.name, time.time()
    door.update_node(name, Comment=cap.claimed(node.comment, now))
    try:
        nodes = door.nodes([])
        out = _out_or_not(nodes.get(name), context, reason)
        node = nodes.get(name, node)
        if out is not None:
            return out
        if why := cap.full(nodes, name, site["drain_cap"], now):
            syslog.syslog(syslog.LOG_ALERT, f"{name} stays in service: {why}; found: {reason}")
            notify.tell(site["notify"], "not-drained", name, f"{why}; found: {reason}")
            return False
        _write(door, site, context, joined(reason, node.standing_reason))
    finally:
        try:
            door.update_node(name, Comment=remark.unremarked(cap.unclaimed(node.comment)))
            if marker.remarked(site):  # of a dry run that is over
                marker.remark(site, "")
        except SlurmError as error:
            syslog.syslog(syslog.LOG_WARNING, f"{name} keeps its claim for {cap.CLAIM_S} s: {error.one_line}")
    return True


def _write(door: Slurm, site: Mapping[str, Any], context: Context, reason: str) -> None:
    """The drain itself, remembered before: one that nobody remembers is never undone. Raises SlurmError."""
    marker.drained(site, reason, context, done=False)
    door.drain(context.node, reason)
    marker.drained(site, reason, context, done=True)
    syslog.syslog(syslog.LOG_ERR, f"drained {context.node}: {reason}")
    notify.tell(site["notify"], "drained", context.node, reason)


def resume(door: Slurm, site: Mapping[str, Any], node: Node) -> None:
    """Bring a node back that is out for a reason of ours, and take that reason away. Raises SlurmError."""
    name, reason = node.name, node.standing_reason
    if site["dry_run"]:
        syslog.syslog(syslog.LOG_WARNING, f"dry run: {name} would be resumed; it was drained for: {reason}")
        return
    marker.not_sure(site)
    door.resume(name)
    syslog.syslog(f"resumed {name}; it was drained for: {reason}")
    notify.tell(site["notify"], "resumed", name, reason)
    left = door.nodes([name]).get(name)
    if left and not left.standing_reason:  # else a prolog has drained it again, and has remembered that
        take_away(door, left)
        marker.clear(site)


def take_away(door: Slurm, node: Node) -> None:
    """Take a reason of ours from a node in service: 24.11 keeps it, and every release on a node that was busy.

    Slurm's own next drain would stand there with it, as if it were ours to undo.
    """
    if node.reason.startswith(OURS) and not node.standing_reason:
        door.update_node(node.name, Reason=NO_REASON)
