"""What the items for accelerators that Slurm tells us nothing of share: the site says how many a node has."""

from __future__ import annotations

from collections.abc import Mapping

from prechecks.check import Check
from prechecks.setting import COUNT, PATH, Setting
from prechecks.verdict import FAILED, NODE_PROBLEM, OK, Context, Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Accelerator(Check):
    """An item with `count` and `tool`; a node that should have some and lacks the tool is unknown, not bad."""

    problem = NODE_PROBLEM
    condition = "the site does not say how many a node has"

    def applies(self, context: Context, settings: Mapping[str, Any]) -> bool:
        """Wherever the site sets a count; `nodes` and `partitions` say which nodes have them."""
        return bool(self.own(settings).get("count"))


def settings_of(what: str, path: str) -> dict[str, Setting]:
    """The two settings that they share; `what` as people call several of them."""
    return {
        "count": Setting(COUNT, None, f"{what} of a node, at least; null: not looked at"),
        "tool": Setting(PATH, path, "the vendor's tool"),
    }


def judge(what: str, complaints: Mapping[str, str], count: int) -> Finding:
    """As many as wanted, each without a complaint; `complaints` has every one that was found, by its name."""
    bad = [f"{name} {complaint}" for name, complaint in complaints.items() if complaint]
    fine = len(complaints) - len(bad)
    message = f"{fine} of {max(count, len(complaints))} {what}" + (f": {', '.join(bad)}" if bad else "")
    return Finding(FAILED if bad or len(complaints) < count else OK, message, f"found {', '.join(complaints)}", count)
