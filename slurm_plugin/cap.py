"""How many nodes may be out of service by our doing. Pure.

Reading how many are out and then draining is a race: of a thousand nodes that fail in one second each would read that
few are. So a node that is to be drained first has a **claim** written into its Comment, and only then counts the nodes
of each of its partitions that are out with a reason of ours, and those with a claim. Of any nodes that were drained
together the last to write its claim has seen all the others, so they are never more than the cap. Where more claim at
once than there is room for, some or all of them stay in service, and the next periodic check claims again.

A claim is good for CLAIM_S seconds: one that a killed hook left behind keeps nobody away for longer. A node in no
partition runs no jobs and has no cap.
"""

import re
from collections.abc import Mapping
from typing import Final

from prechecks.report import OURS
from slurm_plugin.comment import without
from slurm_plugin.slurm import Node

CLAIM_S: Final = 300  # far above what a hook may take, and what two nodes' clocks may differ by
_CLAIM: Final = re.compile(r" ?\[slurm_plugin: to be drained, ([0-9]{1,11})\]", re.ASCII)


def claimed(comment: str, now: float) -> str:
    """A node's comment with a claim of this second, behind what an administrator wrote there."""
    return f"{unclaimed(comment)} [slurm_plugin: to be drained, {now:.0f}]".lstrip()


def unclaimed(comment: str) -> str:
    """A node's comment without a claim."""
    return without(_CLAIM, comment)


def outdated(comment: str, now: float) -> bool:
    """Whether a claim stands there that is good no more."""
    found = _CLAIM.search(comment)
    return found is not None and abs(now - int(found[1])) >= CLAIM_S


def is_out(node: Node) -> bool:
    """Whether it is out of service with a reason of ours."""
    return node.standing_reason.startswith(OURS)


def full(nodes: Mapping[str, Node], name: str, share: float, now: float) -> str:
    """Why no more nodes may be drained beside `name`; empty where there is room.

    `nodes` are all of the cluster's, `share` is the part of a partition's nodes, 0 to 1, that may be out by our doing,
    and at least one. `now` is in seconds of the epoch.
    """
    for partition in nodes[name].partitions:
        members = [node for node in nodes.values() if partition in node.partitions]
        others = sum(node.name != name and (is_out(node) or _claims(node, now)) for node in members)
        most = max(1, int(len(members) * share))
        if others >= most:
            return (
                f"{others} of {len(members)} nodes of partition {partition} are out by our doing or about to be; "
                f"at most {most} may be (drain_cap)"
            )
    return ""


def _claims(node: Node, now: float) -> bool:
    return _CLAIM.search(node.comment) is not None and not outdated(node.comment, now)
