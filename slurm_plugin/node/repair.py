"""Repair a node that the plugin drained.

The site names the steps for an item: `gpu-xid: [gpu-reset, reboot, report]`. The periodic check begins one step at a
time, on an idle node only:

| step | what it does | it did not help |
|---|---|---|
| `gpu-reset` | `nvidia-smi --gpu-reset`, in another process | it fails, or the item fails after it |
| `reboot` | `scontrol reboot`, which keeps the drain | the node does not boot, or the item fails after it |
| `report` | calls the site's notify command; the last step | |

If a step did not help, the next one begins. If it did, the node passes its checks and its burn-in, and is resumed. One
node of a partition is under repair at a time. A node gets at most MOST resets and reboots in DAYS; after those it is
reported. All this is in the node's Comment (slurm_plugin.records.node_repairs), because a boot ends root's records.
A reason that only an administrator ends (`repeat`, `burn-in`, another text) is not repaired.
"""

from __future__ import annotations

import os
import time
from collections import namedtuple
from collections.abc import Mapping

from prechecks import EVENT_ITEMS
from slurm_plugin.node import long_program
from slurm_plugin.records import metrics, node_drains, node_repairs, notify, syslog
from slurm_plugin.records.metrics import REBOOT, RESET
from slurm_plugin.records.node_repairs import MOST, REPORT, Repair
from slurm_plugin.slurm import SlurmError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from slurm_plugin.slurm import Node, Slurm

RESET_S, BOOT_S = 300.0, 1800.0  # until a reset is killed, and until a node that was to boot has not
SPREAD_S = 4.0
REBOOT_WORDS = " : reboot "  # slurmctld adds them to the reason, with `issued` and others


class Look(namedtuple("Look", "items failed fine")):
    """What one check says about the drain reason: all its items, those that failed, and those that passed."""

    __slots__ = ()
    items: frozenset[str]
    failed: frozenset[str]
    fine: frozenset[str]


def attend(door: Slurm, site: Mapping[str, Any], node: Node, look: Look) -> None:
    """Judge the last step, and begin the next one if it is time. Raises SlurmError."""
    done, now = node_repairs.of_drain(node.comment), time.time()
    last = done[-1] if done else None
    if last and not last.end:
        if not _is_over(site, last, look, now):
            return
        syslog.syslog(syslog.LOG_WARNING, f"{node.name}: {last.step} for {last.item} did not help")
        node = _commented(door, node, node_repairs.ended(node.comment, now))
    if last and last.step == REPORT:
        return
    bad = look.failed | _events(site, look.items)
    item = next((each for each in site["repair"] if each in bad), "")
    if not item and last and not look.items <= look.fine:  # another item is bad now, or its check has no result
        item = last.item
    if step := _next_step(site["repair"].get(item, []), [each.step for each in done if each.item == item], node, now):
        _begin(door, site, node, step, item)


def _events(site: Mapping[str, Any], items: frozenset[str]) -> frozenset[str]:
    """Return the items of the reason that no later check reports: events of this boot."""
    return frozenset() if node_drains.load(site, node_drains.DRAINED).get("earlier") else items & EVENT_ITEMS


def _next_step(steps: list[str], done: list[str], node: Node, now: float) -> str:
    """Return the next step; empty if none is left."""
    if len(done) >= len(steps):
        return ""
    step: str = steps[len(done)]
    if step != REPORT and len(node_repairs.recent(node.comment, now)) >= MOST:
        return REPORT if REPORT in steps else ""
    return step


def _is_over(site: Mapping[str, Any], last: Repair, look: Look, now: float) -> bool:
    """Return whether the last step did not help: an item of the reason fails after it, or has no result for BOOT_S.

    After a good reset or a boot, events before it no longer keep the node out.
    """
    age_s = last.age_s(now)
    if last.step == REBOOT:
        if time.clock_gettime(time.CLOCK_BOOTTIME) >= age_s:
            return age_s > BOOT_S
    else:
        result = long_program.result(site, RESET, last.start)
        if result is None:  # it runs, or its process was killed
            return age_s > RESET_S + long_program.LATE_S
        if result.code != 0:
            return True
    facts = node_drains.load(site, node_drains.DRAINED)
    if not facts.get("earlier") and not look.failed & EVENT_ITEMS:
        node_drains.keep(site, node_drains.DRAINED, {**facts, "earlier": True})
    return bool(look.failed) or (age_s > BOOT_S and not look.items <= look.fine)


def _begin(door: Slurm, site: Mapping[str, Any], node: Node, step: str, item: str) -> None:
    """Begin a step, unless another node of its partitions is under repair. Raises SlurmError."""
    words, now = f"{step} for {item}", time.time()
    if step != REPORT and not node.is_unused:
        return
    if step == REPORT:
        _commented(door, node, node_repairs.with_repair(node.comment, step, item, now))
        tried = ", ".join(each.step for each in node_repairs.of_drain(node.comment))
        words = f"{item} needs a person; tried: {tried or f'nothing, {MOST} repairs in {node_repairs.DAYS} days'}"
        syslog.syslog(syslog.LOG_ALERT, f"{node.name}: {words}")
        notify.tell(site, "report", node.name, words, node.standing_reason)
        return
    if _others(door.nodes([]), node, now):
        return
    # slurmctld starts the periodic check on all nodes at the same moment: let one of them be the first.
    time.sleep(os.urandom(1)[0] / 256 * SPREAD_S)
    node = _commented(door, node, node_repairs.with_repair(node.comment, step, item, now))
    nodes = door.nodes([])
    others, fresh = _others(nodes, node, now), nodes.get(node.name)
    if others or not fresh or fresh.standing_reason != node.standing_reason or not fresh.is_unused:
        syslog.syslog(f"{node.name}: {words} waits{f' for the repair of {others}' if others else ''}")
        _commented(door, node, node_repairs.withdrawn(node.comment))
        return
    syslog.syslog(syslog.LOG_WARNING, f"{node.name}: {words}; drained for: {node.standing_reason}")
    notify.tell(site, "repair", node.name, words, node.standing_reason)
    metrics.add(site, metrics.NODE, {metrics.sample(metrics.REPAIRS, step=step): 1.0})
    if step == RESET:
        argv = [site["prechecks"].get("gpu-check", {}).get("tool") or "/usr/bin/nvidia-smi", "--gpu-reset"]
        key = node_repairs.repairs_in(node.comment)[-1].start
        long_program.start(site, node.name, long_program.Program(RESET, key, argv, RESET_S))
        return
    try:
        reason, words, _ = node.standing_reason.partition(REBOOT_WORDS)
        if words:  # a second time slurmctld might replace the reason by them
            door.drain(node.name, reason)
        door.reboot(node.name)
    except SlurmError as error:
        syslog.syslog(syslog.LOG_ERR, f"{node.name}: {error.one_line}")
        _commented(door, node, node_repairs.ended(node.comment, now))


def _others(nodes: Mapping[str, Node], node: Node, now: float) -> str:
    """Return the other nodes of its partitions that are under repair, of all nodes, with commas."""
    own = {*node.partitions}
    return ", ".join(
        other.name
        for other in nodes.values()
        if other.name != node.name and own & {*other.partitions} and node_repairs.has_open(other.comment, now)
    )


def _commented(door: Slurm, node: Node, comment: str) -> Node:
    """Change the node's Comment. Return the node with it. Raises SlurmError."""
    door.update_node(node.name, Comment=comment)
    return node._replace(comment=comment)
