"""Keep a node out of service that fails again and again, until an administrator resumes it.

Its reason then begins with the keyword `repeat`, which no check clears. The past drains in the node's Comment
(slurm_plugin.records.node_drains) are those of one machine: a replaced machine begins anew. A machine is recognised by
a checksum of its serial number, because everyone can read the Comment.
"""

from __future__ import annotations

import time
from binascii import crc32

from prechecks.measure import system
from prechecks.report import JOBS, OURS, reason_parts
from slurm_plugin.records import node_drains, node_repairs, syslog

TYPE_CHECKING = False
if TYPE_CHECKING:
    from slurm_plugin.slurm import Node, Slurm

# Documentation/ABI/testing/sysfs-firmware-dmi-tables; only root can read the first three. The last one is an
# installation's: without a serial number, an image that makes a new one at each boot has no past.
SERIALS = (
    "sys/class/dmi/id/product_uuid", "sys/class/dmi/id/product_serial", "sys/class/dmi/id/board_serial",
    "etc/machine-id",
)  # fmt: skip
# What vendors leave in place of a number.
_NONE = ("none", "default string", "to be filled by o.e.m.", "not specified", "system serial number", "0123456789")
_NO_UUID = "03000200-0400-0500-0006-000700080009"
_REPEAT = f"{node_drains.REPEAT}: "


def machine(root: str = "/") -> str:
    """Return a checksum of this machine's serial number; empty if it has none."""
    for path in SERIALS:
        number = (system.text(f"{root}{path}") or "").lower()
        if number not in (*_NONE, _NO_UUID) and len({*number} - {"-"}) > 2:  # not only zeros
            return f"{crc32(number.encode()):08x}"
    return ""


def job(reason: str) -> str:
    """Return the id of the last job in a drain reason; empty if there is none."""
    jobs = JOBS.findall(reason)
    return jobs[-1].strip(" []").removeprefix("job ") if jobs else ""


def extended(reason: str, comment: str, limit: int, now: float) -> str:
    """Return the reason of a new drain, with the keyword `repeat` if too many different jobs have drained the node.

    Or if one of its items was repaired lately. `limit`: so many jobs, this drain's included; 0: neither.
    """
    jobs = list(dict.fromkeys(filter(None, (*node_drains.jobs_of(comment, now), job(reason)))))
    items = reason_parts(reason)
    repaired = {each.item for each in node_repairs.recent(comment, now) if each.item.replace(".", " ") in items}
    if not limit or node_drains.REPEAT in items:
        return reason
    if len(jobs) >= limit:
        words = f"drained for jobs {', '.join(jobs)} in {node_drains.REPEAT_DAYS} days"
    elif repaired:
        words = f"{', '.join(sorted(repaired))} again within {node_repairs.DAYS} days of a repair"
    else:
        return reason
    return f"{OURS}{_REPEAT}{words}; {reason.removeprefix(OURS)}"


def begun_anew(door: Slurm, node: Node) -> Node:
    """Forget the past of a machine that was replaced. Return the node as it is now. Raises SlurmError."""
    found = machine()
    if not node_drains.of_another_machine(node.comment, found):
        return node
    syslog.syslog(f"{node.name} is another machine than before: its past is removed")
    comment, reason = node_drains.with_machine(node.comment, found), node.standing_reason
    comment = node_repairs.carried(node.comment, comment, time.time())
    door.update_node(node.name, Comment=comment)
    if reason.startswith(OURS) and node_drains.REPEAT in (parts := reason_parts(reason)):
        parts.pop(node_drains.REPEAT)
        reason = OURS + "; ".join(parts.values()) + "".join(JOBS.findall(reason))
        door.drain(node.name, reason)
        node = node._replace(reason=reason)
    return node._replace(comment=comment)
