"""Burn-in: the site's test of a drained node, which must pass before the periodic check resumes the node.

Its result (slurm_plugin.node.long_program) is that of one drain of this boot, named by its time and reason. A test
whose process was killed has none, and is started again.
"""

from __future__ import annotations

from collections.abc import Mapping

from prechecks.report import OURS
from prechecks.verdict import one_line
from slurm_plugin.node import long_program
from slurm_plugin.records import node_drains

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from slurm_plugin.slurm import Node

ROW = "burn-in"  # the record of its result


def passed(site: Mapping[str, Any], node: Node) -> bool:
    """Return whether the drained node may be resumed. If its burn-in has not run yet, start it once the node is idle.

    A failure is in `failure`.
    """
    own = site["burn_in"]
    if not own["command"] or site["dry_run"]:
        return True
    drain = node_drains.drain_of(node)
    if found := long_program.result(site, ROW, drain):
        return bool(found.code == 0)
    if node.is_unused:
        program = long_program.Program(ROW, drain, own["command"], own["deadline_s"])
        long_program.start(site, node.name, program)
    return False


def failure(site: Mapping[str, Any], node: Node) -> str:
    """Return the drain reason of a burn-in that failed for this drain of the node; empty if none failed."""
    found = long_program.result(site, ROW, node_drains.drain_of(node))
    if not found or found.code == 0:
        return ""
    ended = f"not done after {site['burn_in']['deadline_s']} s" if found.code is None else f"exit code {found.code}"
    words = one_line(found.words).replace("; ", ", ").replace('"', "'")
    return f"{OURS}{node_drains.BURN_IN}: {ended}{words and f': {words}'}"
