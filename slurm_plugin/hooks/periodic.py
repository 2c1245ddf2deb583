"""HealthCheckProgram (root, on every node, every few minutes): look at the node, drain it, bring back what we drained.

A healthy look asks Slurm nothing: a marker of root's on this node says whether we drained it. A boot takes the marker
along; then the second look asks. Not the first: slurmd runs that one while it starts, before it has registered, and
waits for it. Every question has a deadline, and what could not be asked is asked the next time.
"""

from __future__ import annotations

import os
import syslog
import time
from collections.abc import Mapping

import prechecks
from prechecks import seen
from prechecks.report import OURS
from slurm_plugin import compiled, health
from slurm_plugin.health import Row
from slurm_plugin.hooks import draining, published, sweep

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from slurm_plugin.slurm import Slurm

HOOK = "periodic"
ROW = "periodic"  # in the state directory: what the looks before came to
ITEMS = tuple(check.item for check in prechecks.CHECKS)
SHARED = frozenset(check.item for check in prechecks.CHECKS if check.shared)
EVENTS = frozenset(check.item for check in prechecks.CHECKS if check.event)
SLURM_S = 5.0  # for each of at most six questions: slurmd kills this hook after 60 s


def main() -> int:
    """One look. Its exit code is only logged by Slurm."""
    site, node = compiled.read(compiled.site_root()), os.environ["SLURMD_NODENAME"]
    syslog.openlog("slurm_plugin")
    state = site["prechecks"]["state"]
    marker = _loaded(state, draining.MARKER)
    context = prechecks.Context(HOOK, node, (), tuple(marker.get("gpus", ())), bool(marker.get("infiniband")))
    verdicts = prechecks.run(context, site["prechecks"])
    for verdict in verdicts:
        if verdict.verdict not in (prechecks.OK, prechecks.SKIPPED):  # the rest every few minutes would fill a log
            syslog.syslog(prechecks.line(node, verdict))
    before = _loaded(state, ROW)
    events = () if marker.get("earlier") else EVENTS
    row = health.after(_row(before), verdicts, marker.get("reason", ""), ITEMS, events)
    try:
        seen.save(state, ROW, row._asdict())
    except OSError as error:
        syslog.syslog(syslog.LOG_ERR, f"this look cannot be remembered: {error}")
    report = prechecks.Report(node, None, HOOK, time.time(), verdicts)
    published.last(site, report)
    published.metrics(site, report)
    owed = _loaded(state, draining.OWED).get("reason", "")
    _act(site, context, row, verdicts, owed=owed, unknown=bool(before) and not marker)
    sweep.sweep(site, node, lambda: _door(site))
    return 0


def _door(site: Mapping[str, Any]) -> Slurm:
    from slurm_plugin.slurm import connect  # noqa: PLC0415 - a healthy look does without

    return connect(site["slurm_bin"], deadline_s=SLURM_S)


def _row(fields: Mapping[str, Any]) -> Row:
    """The row so far; an empty one where what was kept is not one of ours."""
    try:
        return Row(**fields)
    except TypeError:
        return Row()


def _loaded(state: str, item: str) -> dict[str, Any]:
    try:
        return seen.load(state, item)
    except OSError as error:
        syslog.syslog(syslog.LOG_ERR, f"what was remembered cannot be read: {error}")
        return {}


def _act(
    site: Mapping[str, Any],
    context: prechecks.Context,
    row: Row,
    verdicts: tuple[prechecks.Verdict, ...],
    *,
    owed: str,
    unknown: bool,
) -> None:
    """Ask Slurm only where there is something to change; or where it is `unknown` whether we drained this node.

    `owed`: a reason for which it should have been drained before.
    """
    bad = health.draining(row, verdicts, SHARED, site["periodic"]["failures"])
    new = {verdict.item for verdict in bad} - health.named(row.reason, ITEMS)
    back = bool(row.reason) and row.passes >= site["periodic"]["passes"]
    if not (new or owed or back or unknown):
        return
    from slurm_plugin.slurm import SlurmError  # noqa: PLC0415 - as above

    door = _door(site)
    if new or owed:
        reasons = (prechecks.reason(bad, None) if new else "", owed.removeprefix(OURS if new else ""))
        draining.drain(door, site, context, "; ".join(filter(None, reasons)))
        return
    try:
        _stand(door, site, context, row.reason, back=back)
    except SlurmError as error:
        syslog.syslog(syslog.LOG_WARNING, f"could not look after {context.node} in Slurm: {error}")


def _stand(door: Slurm, site: Mapping[str, Any], context: prechecks.Context, reason: str, *, back: bool) -> None:
    """Bring the node back that has passed, or take up what stands in Slurm. Raises SlurmError."""
    node = door.nodes([context.node]).get(context.node)
    if node is None:
        return
    stands = node.standing_reason
    if stands != reason or not health.named(stands, ITEMS):  # resumed by hand, rewritten, or not known since the boot
        ours = stands if health.named(stands, ITEMS) and not reason else ""
        draining.mark(site, ours, context, earlier=True)
    elif back and node.states & draining.LEFT_ALONE:
        syslog.syslog(f"{context.node} passes again and is left alone: {'+'.join(sorted(node.states))}")
    elif back:
        draining.resume(door, site, node)
        if not site["dry_run"]:
            draining.mark(site, "", context._replace(gpus=(), infiniband=False))
