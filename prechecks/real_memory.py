"""`memory slurm`: the node has the memory that slurm.conf says it has, RealMemory, by which jobs are placed.

Slurm compares the two itself when slurmd registers. This sees it in between, and names it beside what else is wrong. It
reads slurm.conf (prechecks.slurmconf) and nothing more: where that cannot be read, or does not say, nothing is known.
MemTotal is what slurmd registers, too: pages of memory, without those that firmware and kernel keep.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from prechecks import memory, units
from prechecks.check import Check
from prechecks.verdict import FAILED, NODE_PROBLEM, OK, SKIPPED, Context, Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from prechecks.slurmconf import Node

MB = 1 << 20
LARGEST = 1 << 24  # bytes of one file


class RealMemory(Check):
    """`settings["memory"]`: `slurm`, whether to compare, and `slurm_conf`, with what."""

    item = "memory.slurm"
    looks_at = "the node's memory, against RealMemory of this node in slurm.conf"
    section = "memory"
    settings = memory.Memory.settings
    problem = NODE_PROBLEM
    hooks = ("periodic", "hand")
    condition = "not wanted on this site"
    quick = True

    def applies(self, context: Context, settings: Mapping[str, Any]) -> bool:
        """Unless the site does not want it."""
        return bool(self.own(settings).get("slurm"))

    def look(self, context: Context, settings: Mapping[str, Any]) -> Finding:
        """That slurm.conf, or the first that is there."""
        from prechecks import slurmconf  # noqa: PLC0415 - no prolog needs it

        own = self.own(settings).get("slurm_conf")
        places = (own,) if own else tuple(filter(None, (os.environ.get("SLURM_CONF"), *slurmconf.PLACES)))
        path = next((place for place in places if os.access(place, os.F_OK)), "")
        if not path:
            return Finding(SKIPPED, f"no slurm.conf here: {', '.join(places)}")
        self.doing(path)
        try:
            known = slurmconf.node(path, context.node, _text)
        except (OSError, ValueError) as error:
            return Finding(SKIPPED, f"{path} cannot be read: {error}")
        return judge(memory.meminfo()["total"], known, f"{context.node} in {path}")


def _text(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - as in prechecks.gpu
        text = file.read(LARGEST + 1)
    if len(text) > LARGEST:
        raise ValueError(f"{path} is too long")
    return text


def judge(total: int, known: Node | None, where: str) -> Finding:
    """Fewer bytes than slurmctld accepts of a node fail; as many, in whole MiB as it counts, pass."""
    if known is None:
        return Finding(SKIPPED, f"there is no {where}")
    if known.overrides:
        return Finding(SKIPPED, "SlurmdParameters=config_overrides: the node may have less than slurm.conf says")
    if known.megabytes is None:
        return Finding(SKIPPED, f"no RealMemory of {where}")
    wanted = int(known.megabytes * known.percent / 100)
    part = "" if known.percent == 100 else f", of which {known.percent:g} % must be"
    message = f"total {units.size(total)}: {total // MB} MB, RealMemory {known.megabytes} MB{part}"
    return Finding(OK if total // MB >= wanted else FAILED, message, total, wanted * MB)
