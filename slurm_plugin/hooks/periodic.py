"""HealthCheckProgram (root, on every node, every few minutes): look at the node, drain it, bring back what we drained.

A healthy look asks Slurm nothing: a marker of root's on this node says whether we drained it. While we did, each look
asks what stands there: somebody may have resumed it. A boot takes the marker along; then the second look asks. Not the
first: slurmd runs that one while it starts, before it has registered, and waits for it. Every question has a deadline,
and what could not be asked is asked the next time.
"""

from __future__ import annotations

import os
import syslog
import time
from collections.abc import Mapping

import prechecks
from prechecks.report import OURS
from slurm_plugin import cap, compiled, health, remark
from slurm_plugin.health import Row
from slurm_plugin.hooks import datasets, draining, marker, published, sweep

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from slurm_plugin.slurm import Node, Slurm

HOOK = "periodic"
ROW = "periodic"  # in the state directory: what the looks before came to
ITEMS = tuple(check.item for check in prechecks.CHECKS)
# What one look is not enough for: causes that many nodes share, and what a running job may do for a while.
SHARED = frozenset(check.item for check in prechecks.CHECKS if check.shared or check.passing)
EVENTS = frozenset(check.item for check in prechecks.CHECKS if check.event)
# slurmd kills this hook after 60 s: the longest time for all checks, and that for each of at most eight questions.
CHECKS_S, SLURM_S = 15.0, 5.0


def main() -> int:
    """One look. Its exit code is only logged by Slurm."""
    site, node = compiled.read(compiled.site_root()), os.environ["SLURMD_NODENAME"]
    syslog.openlog("slurm_plugin")
    if stale := compiled.stale(site):  # where no job asks for checks no prolog's Python says it
        syslog.syslog(syslog.LOG_WARNING, stale)
    facts = marker.load(site, marker.DRAINED)
    context = prechecks.Context(HOOK, node, (), tuple(facts.get("gpus", ())), bool(facts.get("infiniband")))
    settings = site["prechecks"]
    verdicts = prechecks.run(context, {**settings, "deadline_s": min(settings["deadline_s"], CHECKS_S)})
    for verdict in verdicts:
        if verdict.verdict not in (prechecks.OK, prechecks.SKIPPED):  # the rest every few minutes would fill a log
            syslog.syslog(prechecks.line(node, verdict))
    before = marker.load(site, ROW)
    reason = facts.get("reason", "") if facts.get("done") else ""
    row = health.after(_row(before), verdicts, reason, ITEMS, () if facts.get("earlier") else EVENTS)
    marker.keep(site, ROW, row._asdict())
    report = prechecks.Report(node, None, HOOK, time.time(), verdicts)
    published.last(site, report)
    published.metrics(site, report)
    bad = health.draining(row, verdicts, SHARED, site["periodic"]["failures"])
    owed = marker.owed(site)
    unknown = bool(before) and not facts.get("done")
    remarked = marker.remarked(site)
    over = not site["dry_run"] or (not owed and health.well(verdicts, remarked, ITEMS))
    if bad or owed or reason or unknown or (remarked and over):
        found = prechecks.reason(bad, None) or owed
        _act(site, context, row, draining.owing(site, found) if found else "", over=over)
    sweep.sweep(site, node, lambda: _door(site))
    datasets.clean(site)
    return 0


def _row(fields: Mapping[str, Any]) -> Row:
    """The row so far; an empty one where what was kept is not one of ours."""
    try:
        return Row(**fields)
    except TypeError:
        return Row()


def _door(site: Mapping[str, Any]) -> Slurm:
    from slurm_plugin.slurm import connect  # noqa: PLC0415 - a healthy look does without

    return connect(site["slurm_bin"], deadline_s=SLURM_S)


def _act(site: Mapping[str, Any], context: prechecks.Context, row: Row, found: str, *, over: bool) -> None:
    """Take up what stands in Slurm, then drain the node for what was `found`, or bring it back.

    `over`: what a dry run has written into its Comment holds no more.
    """
    from slurm_plugin.errors import SlurmPluginError  # noqa: PLC0415 - as above

    try:
        door = _door(site)
        node = door.nodes([context.node]).get(context.node)
        if node is None:
            return
        _tidy(door, site, node, over=over)
        if not row.reason or node.standing_reason != row.reason:
            _take_up(door, site, context, row, node)
        if found:
            draining.drain(door, site, context, found)
        elif row.reason and row.reason == node.standing_reason and row.passes >= site["periodic"]["passes"]:
            _bring_back(door, site, node)
    except SlurmPluginError as error:
        what = f"drain {context.node} ({found})" if found else f"see what stands of {context.node}"
        syslog.syslog(syslog.LOG_ERR, f"could not {what}: {error.one_line}")


def _tidy(door: Slurm, site: Mapping[str, Any], node: Node, *, over: bool) -> None:
    """Take from its Comment a claim of a hook that was killed, and a dry run's remark once that is `over`.

    A remark that a boot made us forget is remembered until then. Raises SlurmError.
    """
    comment, remarked = node.comment, marker.remarked(site)
    if cap.outdated(comment, time.time()):
        comment = cap.unclaimed(comment)
    if over:
        comment = remark.unremarked(comment)
    if comment != node.comment:
        door.update_node(node.name, Comment=comment)
    if remarked and over:
        marker.remark(site, "")
    elif not remarked and remark.found(comment):
        marker.remark(site, OURS)


def _take_up(door: Slurm, site: Mapping[str, Any], context: prechecks.Context, row: Row, node: Node) -> None:
    """Remember what stands in place of what we remembered, or of nothing. Raises SlurmError.

    What stands where we remembered another reason is somebody's: resumed by hand, or rewritten.
    """
    if not row.reason and health.named(node.standing_reason, ITEMS):
        marker.drained(site, node.standing_reason, context, done=True, earlier=_before_boot(node))
        return
    draining.take_away(door, node)
    marker.clear(site)


def _before_boot(node: Node) -> bool:
    """Whether its reason was written before this machine came up."""
    up_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    return node.reason_time is not None and node.reason_time.timestamp() < time.time() - up_s


def _bring_back(door: Slurm, site: Mapping[str, Any], node: Node) -> None:
    if node.states & draining.LEFT_ALONE:
        syslog.syslog(f"{node.name} passes again and is left alone: {'+'.join(sorted(node.states))}")
    else:
        draining.resume(door, site, node)
