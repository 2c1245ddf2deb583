"""What root remembers on this node, for this boot, of what was done with it (prechecks.seen).

`drained.json`: why we drained it (`reason`, empty where we did not), the GPUs and whether InfiniBand was looked at
then, whether Slurm has said yes to it (`done`), and whether that was before this boot (`earlier`). `owed.json`: why it
should have been drained. `remark.json`: why its Comment says, on a dry run, that it would be. What cannot be read or
written is logged, and then not remembered.
"""

from __future__ import annotations

import syslog
from collections.abc import Mapping

from prechecks import seen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from prechecks import Context

DRAINED, OWED, REMARK = "drained", "owed", "remark"


def load(site: Mapping[str, Any], item: str) -> dict[str, Any]:
    """What was kept of this boot; empty where nothing was."""
    try:
        return seen.load(site["prechecks"]["state"], item)
    except OSError as error:
        syslog.syslog(syslog.LOG_ERR, f"what was remembered cannot be read: {error}")
        return {}


def keep(site: Mapping[str, Any], item: str, facts: Mapping[str, Any]) -> None:
    """Put these facts in the place of those before."""
    try:
        seen.save(site["prechecks"]["state"], item, facts)
    except OSError as error:
        syslog.syslog(syslog.LOG_ERR, f"this cannot be remembered: {error}")


def drained(site: Mapping[str, Any], reason: str, context: Context, *, done: bool, earlier: bool = False) -> None:
    """Remember a drain of ours; what one before it was about is still to be looked at."""
    before = load(site, DRAINED)
    if not before.get("reason"):
        before = {}
    facts = {
        "reason": reason,
        "gpus": sorted({*before.get("gpus", ()), *context.gpus}),
        "infiniband": bool(before.get("infiniband")) or context.infiniband,
        "done": done,
        "earlier": earlier,
    }
    keep(site, DRAINED, facts)


def not_sure(site: Mapping[str, Any]) -> None:
    """Before Slurm is asked to undo it: until that is done, the next look asks what stands."""
    keep(site, DRAINED, {**load(site, DRAINED), "done": False})


def clear(site: Mapping[str, Any]) -> None:
    """Remember that this node is not out by our doing."""
    keep(site, DRAINED, {"reason": "", "done": True})


def owed(site: Mapping[str, Any]) -> str:
    """The reason for which it should have been drained; empty for none."""
    return str(load(site, OWED).get("reason", ""))


def owe(site: Mapping[str, Any], reason: str) -> None:
    """Remember that it should have been drained; an empty reason: that nothing is owed."""
    keep(site, OWED, {"reason": reason})


def remarked(site: Mapping[str, Any]) -> str:
    """The reason that a dry run wrote into this node's Comment; empty for none."""
    return str(load(site, REMARK).get("reason", ""))


def remark(site: Mapping[str, Any], reason: str) -> None:
    """Remember what a dry run wrote there; an empty reason: that nothing of it stands there any more."""
    keep(site, REMARK, {"reason": reason})
