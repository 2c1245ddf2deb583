"""Drain this node and resume it, with a reason that names the items.

The plugin never replaces an administrator's reason, and never drains more nodes than the site's cap allows.

Counting the drained nodes before a drain is a race: if a thousand nodes fail in one second, each counts only a few. So
a node first writes a claim into its Comment (slurm_plugin.records.node_drains). Then it counts the nodes with a plugin
reason or a claim, in each of its partitions. The node that writes its claim last sees all other claims, so the number
never exceeds the cap. If too many nodes claim at the same time, some or all stay in service. Their next periodic checks
claim again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from prechecks import EVENT_ITEMS, boot_state, files
from prechecks.report import JOBS, OURS, reason_parts
from slurm_plugin.errors import SlurmPluginError
from slurm_plugin.node import repeats
from slurm_plugin.records import metrics, node_drains, node_repairs, notify, syslog
from slurm_plugin.slurm import UNKNOWN, Node, Slurm, SlurmError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from prechecks import Context

MOST_JOBS = 64  # most jobs in one reason: jobs that share a node may fail together
LOCK_WAIT_S = 10.0  # each hook of another job on the node holds the lock for a few requests to Slurm
LOCK = "drain.lock"  # a file that only root can open; users could lock a directory
# States in which Slurm or an administrator is about to act on the node: the periodic check does not drain or resume it.
LEFT_ALONE = frozenset(
    {
        "FAIL", "FAILING", "MAINT", "MAINTENANCE", "PLANNED", "POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN",
        "POWERING_UP", "POWER_UP", "REBOOT", "REBOOT_ISSUED", "REBOOT_REQUESTED", "RESERVED", UNKNOWN,
    }
)  # fmt: skip
# Replaces a plugin reason that Slurm keeps after a RESUME. When Slurm drains a node itself, it replaces only this text
# (_drain_node in src/slurmctld/node_mgr.c). Setting an empty reason has no effect on 24.11.
NO_REASON = "Not responding"


def may_drain(node: Node) -> bool:
    """Return whether the plugin may write the node's reason: the state is known, and any reason is the plugin's."""
    return UNKNOWN not in node.states and (not node.standing_reason or is_out(node))


def is_out(node: Node) -> bool:
    """Return whether the node is out of service with a plugin reason."""
    return node.standing_reason.startswith(OURS)


def cap_reached(nodes: Mapping[str, Node], name: str, share: float, now: float) -> str:
    """Return a message if the cap does not allow a drain of the node `name`; empty if it does.

    `nodes`: all nodes of the cluster. `share`: the part of a partition, 0 to 1, that may be drained; one node always
    may. `now`: seconds since the epoch. A node without a partition runs no jobs and has no cap.
    """
    for partition in nodes[name].partitions:
        members = [node for node in nodes.values() if partition in node.partitions]
        others = sum(
            node.name != name and (is_out(node) or node_drains.has_claim(node.comment, now)) for node in members
        )
        most = max(1, int(len(members) * share))
        if others >= most:
            return (
                f"{others} of {len(members)} nodes of partition {partition} are drained by slurm_plugin or about to be;"
                f" at most {most} may be (drain_cap)"
            )
    return ""


def merged_reason(reason: str, before: str) -> str:
    """Return one reason with the items and jobs of both. For an item in both, keep the text in `reason`.

    The jobs that share a node find their ids in the reason (the last MOST_JOBS), and earlier findings stay.
    """
    jobs = dict.fromkeys((*JOBS.findall(before), *JOBS.findall(reason)))
    found = reason_parts(reason)
    found |= {item: part for item, part in reason_parts(before).items() if item not in found}
    return OURS + "; ".join(found.values()) + "".join(tuple(jobs)[-MOST_JOBS:])


def _names(reason: str) -> set[str]:
    """Return the items and jobs in a plugin reason."""
    return {*reason_parts(reason), *JOBS.findall(reason)}


def drain(door: Slurm, site: Mapping[str, Any], context: Context, reason: str) -> bool:
    """Drain this node. Return whether it is out of service now, for any reason.

    The node stays in service, and the log says why, if this is a dry run, if the cap is reached, if Slurm does not
    answer, or if the node's state is unknown. A periodic check also does not drain a node in a state of LEFT_ALONE.
    """
    with _exclusive(site):
        out = _drained(door, site, context, with_owed(site, reason))
        if out and node_drains.reason(site, node_drains.OWED):
            node_drains.keep_reason(site, node_drains.OWED, "")
    return out


@contextmanager
def _exclusive(site: Mapping[str, Any]) -> Iterator[None]:
    """Lock out other hooks that drain this node. Wait LOCK_WAIT_S at most, then continue without the lock.

    Each hook reads the reason, adds its job, and writes the reason. If another hook overwrote a job's id, the job would
    look as if an administrator had requeued it.
    """
    with ExitStack() as stack:
        try:
            directory = boot_state.open_directory(site["prechecks"]["state"], make=True)
            stack.callback(os.close, directory)
            stack.callback(os.close, files.lock(directory, LOCK, LOCK_WAIT_S))
        except OSError as error:
            syslog.syslog(syslog.LOG_WARNING, f"the drain does not wait for other hooks: {error}")
        yield


def with_owed(site: Mapping[str, Any], reason: str) -> str:
    """Return `reason` merged with the reason that Slurm has not accepted yet (OWED). Record its events in OWED.

    Later checks do not report an event, such as an Xid, again. If this hook is killed, the next periodic check drains.
    """
    before = node_drains.reason(site, node_drains.OWED)
    whole = merged_reason(reason, before) if before else reason
    if owed := _events(whole):
        node_drains.keep_reason(site, node_drains.OWED, OURS + "; ".join(owed))
    return whole


def _events(reason: str) -> list[str]:
    """Return the parts of a reason that are events."""
    events = {item.replace(".", " ") for item in EVENT_ITEMS}
    return [part for item, part in reason_parts(reason).items() if item in events]


def _drained(door: Slurm, site: Mapping[str, Any], context: Context, reason: str) -> bool:
    name = context.node
    if site["dry_run"]:
        syslog.syslog(syslog.LOG_WARNING, f"dry run: {name} would be drained: {reason}")
        _remark(door, site, context, reason)
        return False
    try:
        node = door.nodes([name]).get(name)
        out = _out_already(node, context, reason)
        if out is not None or node is None:
            return bool(out)
        if not is_out(node):
            return _claim_and_drain(door, site, context, node, reason)
        whole, known = merged_reason(reason, node.standing_reason), node_drains.load(site, node_drains.DRAINED)
        earlier = bool(known.get("earlier")) and not _events(reason)
        if _names(whole) != _names(node.standing_reason):  # measured values change from check to check
            _write(door, site, context, whole, earlier=earlier)
        elif earlier != known.get("earlier", False):
            node_drains.keep(site, node_drains.DRAINED, {**known, "earlier": earlier})
    except SlurmPluginError as error:
        syslog.syslog(syslog.LOG_ERR, f"could not drain {name} ({reason}): {error.one_line}")
        return False
    return True


def _remark(door: Slurm, site: Mapping[str, Any], context: Context, reason: str) -> None:
    """Write into the node's Comment that it would be drained; write again only for other items or jobs.

    Record the remark first, or it is never cleaned up.
    """
    name, before = context.node, node_drains.reason(site, node_drains.REMARK)
    whole = merged_reason(reason, before)
    if _names(whole) == _names(before):
        return
    try:
        node = door.nodes([name]).get(name)
        if _out_already(node, context, reason) is not None or node is None or is_out(node):
            return
        if not before:
            node_drains.keep_reason(site, node_drains.REMARK, OURS)
        comment = node_drains.with_remark(node.comment, whole)
        if comment != node.comment:
            door.update_node(name, Comment=comment)
        node_drains.keep_reason(site, node_drains.REMARK, whole)
    except SlurmPluginError as error:
        syslog.syslog(syslog.LOG_WARNING, f"the comment of {name} cannot be changed: {error.one_line}")


def _out_already(node: Node | None, context: Context, reason: str) -> bool | None:
    """Return None if the plugin may drain the node; else whether another reason keeps it out of service."""
    name = context.node
    if node is None or UNKNOWN in node.states:
        syslog.syslog(syslog.LOG_ERR, f"{name} stays in service, its state cannot be read; found: {reason}")
        return False
    if not may_drain(node):
        syslog.syslog(syslog.LOG_ERR, f"{name} keeps its own reason; found: {reason}")
        return True
    if context.hook == "periodic" and node.states & LEFT_ALONE:
        syslog.syslog(
            syslog.LOG_ERR, f"{name} is {'+'.join(sorted(node.states))}, so it is not drained; found: {reason}"
        )
        return False
    return None


def _claim_and_drain(door: Slurm, site: Mapping[str, Any], context: Context, node: Node, reason: str) -> bool:
    """Write a claim; drain the node if the cap allows it. Return whether it is out of service. Raises SlurmError."""
    name, now = node.name, time.time()
    door.update_node(name, Comment=node_drains.with_claim(node.comment, now))
    drained = False
    try:
        nodes = door.nodes([])
        out = _out_already(nodes.get(name), context, reason)
        node = nodes.get(name, node)
        if out is not None:
            return out
        if why := cap_reached(nodes, name, site["drain_cap"], now):
            syslog.syslog(syslog.LOG_ALERT, f"{name} stays in service: {why}; found: {reason}")
            notify.tell(site, "not-drained", name, f"{why}; found: {reason}", reason)
            metrics.add(site, metrics.NODE, {metrics.CAPPED: 1})
            return False
        past = node_drains.with_machine(node.comment, machine := repeats.machine())
        items = reason_parts(reason)
        reason = repeats.extended(merged_reason(reason, node.standing_reason), past, site["repeat_drains"], now)
        _write(door, site, context, reason)
        drained = True
        metrics.add(site, metrics.NODE, metrics.drained(context.hook, items), {metrics.OUT: 1})
    finally:
        try:
            comment = node_drains.without(node_drains.WOULD, node_drains.without(node_drains.CLAIM, node.comment))
            if drained:
                comment = node_drains.with_drain(comment, reason_parts(reason), now, repeats.job(reason), machine)
            door.update_node(name, Comment=comment)
            if node_drains.reason(site, node_drains.REMARK):  # from an earlier dry run
                node_drains.keep_reason(site, node_drains.REMARK, "")
        except SlurmError as error:
            syslog.syslog(syslog.LOG_WARNING, f"{name} keeps its claim for {node_drains.CLAIM_S} s: {error.one_line}")
    return True


def _write(door: Slurm, site: Mapping[str, Any], context: Context, reason: str, *, earlier: bool = False) -> None:
    """Drain the node. Record the drain first, or the plugin never resumes the node. Raises SlurmError.

    `earlier`: every event in the reason was before this boot.
    """
    node_drains.keep_drain(site, reason, context, done=False, earlier=earlier)
    door.drain(context.node, reason)
    node_drains.keep_drain(site, reason, context, done=True, earlier=earlier)
    syslog.syslog(syslog.LOG_ERR, f"drained {context.node}: {reason}")
    notify.tell(site, "drained", context.node, reason)


def resume(door: Slurm, site: Mapping[str, Any], node: Node) -> None:
    """Resume a node and remove its plugin reason; on a dry run, only log it. Raises SlurmError."""
    name, reason = node.name, node.standing_reason
    if site["dry_run"]:
        syslog.syslog(syslog.LOG_WARNING, f"dry run: {name} would be resumed; it was drained for: {reason}")
        return
    node_drains.keep_unfinished(site)
    # Before the resume: after it, a prolog that drains the node again writes its claim into the Comment.
    now = time.time()
    if (comment := node_repairs.ended(node_drains.with_resume(node.comment, now), now)) != node.comment:
        try:
            door.update_node(name, Comment=comment)
        except SlurmError as error:
            syslog.syslog(syslog.LOG_WARNING, f"the comment of {name} cannot be changed: {error.one_line}")
    door.resume(name)
    syslog.syslog(f"resumed {name}; it was drained for: {reason}")
    notify.tell(site, "resumed", name, reason)
    metrics.add(site, metrics.NODE, {metrics.RESUMES: 1}, {metrics.OUT: 0})
    left = door.nodes([name]).get(name)
    if left and not left.standing_reason:  # else a prolog has drained it again, and recorded that
        remove_reason(door, left)
        node_drains.keep_no_drain(site)


def remove_reason(door: Slurm, node: Node) -> None:
    """Remove a plugin reason from a node in service. 24.11 keeps it after a RESUME; other releases do on a busy node.

    Else Slurm would keep the reason when it drains the node itself, and its drain would look like one by the plugin.
    """
    if node.reason.startswith(OURS) and not node.standing_reason:
        door.update_node(node.name, Reason=NO_REASON)
