"""HealthCheckProgram (root, on every node, every few minutes): check the node, drain it, resume it when it passes.

A check that passes does not query Slurm: a root-owned file on this node says whether the plugin drained the node. If it
did, each check queries the node's reason: an administrator may have resumed the node. A reboot invalidates the file.
The second check after a reboot then queries Slurm. The first cannot: slurmd registers only after it. Every
request has a deadline. If Slurm does not answer, the next check tries again.

| an item | drains |
|---|---|
| fails, and the cause is on the node | immediately |
| fails, and many nodes may share the cause (dns, mounts, services, clock ...), or the failure may be temporary (links)
  | at the `failures`-th failure in a row |
| has no result (timeout, error) | never; the count of its failures stays |

If the plugin drained the node, the periodic check resumes it after `passes` checks in a row in which every item of the
reason was ok and no item failed. If an item of the reason has no result or was not checked, the count restarts. A node
drained for an event of this boot, such as an Xid, is not resumed, although later checks do not report the event.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections import namedtuple
from collections.abc import Collection, Mapping, Sequence

import prechecks
from prechecks.measure import system
from prechecks.report import JOBS, OURS, node_problems
from prechecks.verdict import OK, SKIPPED, Verdict
from slurm_plugin.node import (
    burn_in,
    cleanup,
    disk_room,
    draining,
    gpu_jobs,
    hook,
    long_program,
    repair,
    repeats,
    stage_in_expiry,
)  # fmt: skip
from slurm_plugin.records import metrics, node_drains, node_repairs, notify, site_settings, syslog

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from slurm_plugin.slurm import Node, Slurm

HOOK = "periodic"
ROW = "periodic"  # the file in the state directory with the counts of earlier checks
ITEMS = tuple(check.item for check in prechecks.CHECKS)
# One failure of these items does not drain: its cause may be a job, common to many nodes, or temporary.
SHARED = frozenset(check.item for check in prechecks.CHECKS if check.shared or check.transient or check.patient)
# slurmd kills this hook after 60 s. CHECKS_S limits all checks together, SLURM_S each request to Slurm. If Slurm does
# not answer, `_act` ends.
CHECKS_S, SLURM_S = 15.0, 5.0
# Files with a driver's version: NVIDIA, AMD, Cambricon, and Huawei's file with `Version=` in its first line.
DRIVERS = (
    "sys/module/nvidia/version", "sys/module/amdgpu/version", "sys/module/cambricon_drv/version",
    "usr/local/Ascend/driver/version.info",
)  # fmt: skip
# `scontrol reboot` appends ` : reboot issued` to the reason.
_OURS = re.compile(rf"{OURS}((?:(?!{JOBS.pattern}).)*)(?:{JOBS.pattern})*(?: : reboot [a-z ]+)*", re.ASCII)


def main() -> int:
    """Run one check. Slurm only logs its exit code."""
    site, node = site_settings.read(site_settings.site_root()), os.environ.get("SLURMD_NODENAME", "")
    if not node:
        print(
            "slurm-plugin: slurmd names the node; by hand: slurm-plugin check --hook periodic --apply", file=sys.stderr
        )
        return 0
    if stale := site_settings.stale(site):  # a prolog logs it only for a job with checks
        syslog.syslog(syslog.LOG_WARNING, stale)
    if long_program.attended(site, node, lambda: _door(site)):
        return 0
    facts = node_drains.load(site, node_drains.DRAINED)
    context = context_of(node, facts)
    settings = site["prechecks"]
    verdicts = prechecks.run(context, {**settings, "deadline_s": min(settings["deadline_s"], CHECKS_S)})
    verdicts = disk_room.make_room(site, context, verdicts, lambda: _door(site))
    for verdict in verdicts:
        if verdict.verdict not in (prechecks.OK, prechecks.SKIPPED):  # the rest would fill the log
            syslog.syslog(prechecks.line(node, verdict))
    before = node_drains.load(site, ROW)
    counts, bad = judged(site, facts, before, verdicts)
    node_drains.keep(site, ROW, counts._asdict())
    report = prechecks.Report(node, None, HOOK, time.time(), verdicts)
    hook.write_report(site, report)
    hook.write_metrics(site, report)
    owed = node_drains.reason(site, node_drains.OWED)
    unknown = bool(before) and not facts.get("done")
    remarked = node_drains.reason(site, node_drains.REMARK)
    over = not site["dry_run"] or (not owed and is_passing(verdicts, remarked, ITEMS))
    if bad or owed or counts.reason or unknown or (remarked and over):
        found = prechecks.reason(bad, None) or owed
        fine = {verdict.item for verdict in verdicts if verdict.verdict == OK}
        _act(site, context, counts, draining.with_owed(site, found) if found else "", fine, over=over)
    if site["metrics_directory"]:
        out = bool(node_drains.load(site, node_drains.DRAINED).get("reason"))
        metrics.add(site, metrics.NODE, {}, {metrics.OUT: out})
    cleanup.sweep_runs(site, node, lambda: _door(site))
    gpu_jobs.sweep(site, node, lambda: _door(site))
    stage_in_expiry.clean(site)
    return 0


def context_of(node: str, facts: Mapping[str, Any]) -> prechecks.Context:
    """Return the context of a check, with the devices in `facts`, the record node_drains.DRAINED, or in its reason."""
    infiniband = bool(items_in(str(facts.get("reason", "")), ITEMS) & {"infiniband", "ulimit"})  # after a boot
    return prechecks.Context(HOOK, node, (), tuple(facts.get("gpus", ())), infiniband or bool(facts.get("infiniband")))


def judged(
    site: Mapping[str, Any], facts: Mapping[str, Any], before: Mapping[str, Any], verdicts: Sequence[Verdict]
) -> tuple[Counts, tuple[Verdict, ...]]:
    """Return the counts after this check, and the verdicts that drain the node now. `before`: the recorded counts."""
    reason = facts.get("reason", "") if facts.get("done") else ""
    events = () if facts.get("earlier") else prechecks.EVENT_ITEMS
    counts = next_counts(_counts(before), verdicts, reason, ITEMS, events)
    return counts, draining_verdicts(counts, verdicts, SHARED, site["periodic"]["failures"])


def _counts(fields: Mapping[str, Any]) -> Counts:
    """Return the recorded counts; empty counts if another version recorded other fields."""
    try:
        return Counts(**fields)
    except TypeError:
        return Counts()


def _door(site: Mapping[str, Any]) -> Slurm:
    from slurm_plugin.slurm import connect  # noqa: PLC0415 - a passing check does not need it

    return connect(site["slurm_bin"], deadline_s=SLURM_S)


def _act(
    site: Mapping[str, Any],
    context: prechecks.Context,
    counts: Counts,
    found: str,
    fine: Collection[str],
    *,
    over: bool,
) -> None:
    """Compare the recorded reason with the node's in Slurm. Then drain the node for `found`, resume or repair it.

    `fine`: the items that passed. `over`: the remark of a dry run no longer applies.
    """
    from slurm_plugin.errors import SlurmPluginError  # noqa: PLC0415 - as above

    try:
        door = _door(site)
        node = door.nodes([context.node]).get(context.node)
        if node is None:
            return
        node = repeats.begun_anew(door, _tidy(door, site, node, over=over))
        if not counts.reason or node.standing_reason != counts.reason:
            _reconcile(door, site, context, counts, node)
        ours = bool(counts.reason) and counts.reason == node.standing_reason
        if found:
            draining.drain(door, site, context, found)
        elif ours and counts.passes >= site["periodic"]["passes"]:
            _resume(door, site, context, node)
            return
        items = items_in(node.standing_reason, ITEMS)
        if ours and items and site["repair"] and not site["dry_run"] and not node.states & draining.LEFT_ALONE:
            repair.attend(
                door, site, node, repair.Look(items, items & items_in(found, ITEMS), items.intersection(fine))
            )
    except SlurmPluginError as error:
        what = f"drain {context.node} ({found})" if found else f"read the state of {context.node}"
        syslog.syslog(syslog.LOG_ERR, f"could not {what}: {error.one_line}")


def _tidy(door: Slurm, site: Mapping[str, Any], node: Node, *, over: bool) -> Node:
    """Remove from the node's Comment an expired claim of a killed hook and, if `over`, the remark of a dry run.

    If not `over`, record the remark again after a reboot. Write the version of the accelerators' driver: the second
    check after a boot comes here, so an upgrade of the driver costs one request. Return the node with its new Comment.
    Raises SlurmError.
    """
    comment, remarked = node.comment, node_drains.reason(site, node_drains.REMARK)
    if not node_drains.has_claim(comment, time.time()):
        comment = node_drains.without(node_drains.CLAIM, comment)
    if over:
        comment = node_drains.without(node_drains.WOULD, comment)
    comment = node_drains.with_driver(comment, driver())
    if comment != node.comment:
        door.update_node(node.name, Comment=comment)
    if remarked and over:
        node_drains.keep_reason(site, node_drains.REMARK, "")
    elif not remarked and node_drains.text_in(node_drains.WOULD, comment):
        node_drains.keep_reason(site, node_drains.REMARK, OURS)
    return node._replace(comment=comment)


def driver(root: str = "/") -> str:
    """Return the version of the loaded driver of accelerators; empty without one."""
    found = next(filter(None, (system.text(f"{root}{path}") for path in DRIVERS)), "")
    return found.partition("\n")[0].removeprefix("Version=")


def _reconcile(door: Slurm, site: Mapping[str, Any], context: prechecks.Context, counts: Counts, node: Node) -> None:
    """Correct the record of the drain if the node has another reason in Slurm. Raises SlurmError.

    If no drain is recorded, or Slurm has added words about a reboot, record a plugin reason found in Slurm. If an
    administrator has resumed the node or changed its reason, record that there is no drain.
    """
    adopted = items_in(node.standing_reason, (*ITEMS, node_drains.REPEAT, node_drains.BURN_IN))
    plain = node.standing_reason.partition(repair.REBOOT_WORDS)[0]
    if adopted and (not counts.reason or plain == counts.reason.partition(repair.REBOOT_WORDS)[0]):
        node_drains.keep_drain(site, node.standing_reason, context, done=True, earlier=_before_boot(node))
        return
    if counts.reason and not node.standing_reason:
        notify.tell(site, "resumed", node.name, "an administrator resumed it", counts.reason)
        if (comment := node_repairs.ended(node.comment, time.time())) != node.comment:
            door.update_node(node.name, Comment=comment)
    draining.remove_reason(door, node)
    node_drains.keep_no_drain(site)


def _before_boot(node: Node) -> bool:
    """Return whether the node's reason was written before this machine booted."""
    up_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    return node.reason_time is not None and node.reason_time.timestamp() < time.time() - up_s


def _resume(door: Slurm, site: Mapping[str, Any], context: prechecks.Context, node: Node) -> None:
    """Resume the node if its burn-in passes, unless Slurm or an administrator is about to act on it.

    Raises SlurmError.
    """
    if node.states & draining.LEFT_ALONE:
        syslog.syslog(f"{node.name} passes again, but is not resumed: it is {'+'.join(sorted(node.states))}")
    elif burn_in.passed(site, node):
        draining.resume(door, site, node)
    elif why := burn_in.failure(site, node):
        draining.drain(door, site, context, why)


class Counts(namedtuple("Counts", "failures passes reason", defaults=({}, 0, ""))):
    """The counts of the checks so far.

    `failures`: item -> failures in a row. `passes`: passing checks in a row while the node is drained for `reason`.
    """

    __slots__ = ()
    failures: Mapping[str, int]
    passes: int
    reason: str


def next_counts(
    before: Counts, verdicts: Sequence[Verdict], reason: str, items: Collection[str], events: Collection[str] = ()
) -> Counts:
    """Return the counts after one more check. `reason`: why the plugin drained the node, or empty.

    `items`: all item ids. `events`: the items that a later check does not clear.
    """
    bad = {verdict.item for verdict in node_problems(verdicts)}
    known = {verdict.item for verdict in verdicts if verdict.failed or verdict.verdict in (OK, SKIPPED)}
    failures = {item: count for item, count in before.failures.items() if item not in known}
    failures.update({item: before.failures.get(item, 0) + 1 for item in bad})
    if not reason:
        return Counts(failures)
    fine = {verdict.item for verdict in verdicts if verdict.verdict == OK}
    names = items_in(reason, items)
    good = not bad and bool(names) and names <= fine and names.isdisjoint(events)
    earlier = before.passes if before.reason == reason else 0
    return Counts(failures, earlier + 1 if good else 0, reason)


def draining_verdicts(
    counts: Counts, verdicts: Sequence[Verdict], shared: Collection[str], needed: int
) -> tuple[Verdict, ...]:
    """Return the verdicts that drain the node now. `shared`: items that drain after `needed` failures in a row."""
    return tuple(
        verdict
        for verdict in node_problems(verdicts)
        if verdict.item not in shared or counts.failures[verdict.item] >= needed
    )


def is_passing(verdicts: Sequence[Verdict], reason: str, items: Collection[str]) -> bool:
    """Return whether the node has no problem, and every item in `reason` has a result or was skipped."""
    unknown = {verdict.item for verdict in verdicts if not verdict.failed and verdict.verdict not in (OK, SKIPPED)}
    return not node_problems(verdicts) and unknown.isdisjoint(items_in(reason, items))


def items_in(reason: str, items: Collection[str]) -> frozenset[str]:
    """Return the items that a reason names: `slurm_plugin: gpu-check: 3 of 4 GPUs; disk-size shm: ... [job 7]`.

    Return an empty set if an administrator has added text, or if a version with other items wrote the reason.
    """
    keywords = {item.replace(".", " "): item for item in items}
    found = _OURS.fullmatch(reason)
    words = [part.partition(": ")[0] for part in found[1].split("; ")] if found else []
    return frozenset(keywords[word] for word in words) if all(word in keywords for word in words) else frozenset()
