"""`ports`: something listens on each TCP port that the site names, at whichever address.

From /proc/net/tcp and tcp6 of this network namespace. These list all listening sockets first, then the connections
(Documentation/networking/proc_net_tcp.rst), so reading ends at the first of those, however many a node has. Shared, as
`services` is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from prechecks.check import Check
from prechecks.setting import PORTS, Setting
from prechecks.verdict import FAILED, NODE_PROBLEM, OK, Context, Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
LISTEN = "0A"  # TCP_LISTEN of <net/tcp_states.h>, as the tables write it


class Ports(Check):
    """`settings["ports"]["listening"]`, numbers."""

    item = "ports"
    looks_at = "TCP ports, IPv4 and IPv6"
    settings: Mapping[str, Setting] = {
        "listening": Setting(PORTS, (), "TCP ports that something must listen on"),
    }
    problem = NODE_PROBLEM
    shared = True
    condition = "no ports of this site"
    forked = False  # the kernel's own tables

    def applies(self, context: Context, settings: Mapping[str, Any]) -> bool:
        """Wherever the site names some."""
        return bool(self.own(settings).get("listening"))

    def look(self, context: Context, settings: Mapping[str, Any]) -> Finding:
        """Each of them is listened on."""
        return judge(listening(), self.own(settings)["listening"])


def listening(tables: Iterable[str] = TABLES) -> set[int]:
    """The ports that something listens on. A kernel without IPv6 has no tcp6."""
    found: set[int] = set()
    for table in tables:
        try:
            with open(table, encoding="ascii") as lines:  # noqa: PTH123 - as in prechecks.gpu
                found |= parse(lines)
        except FileNotFoundError:
            continue
    return found


def parse(lines: Iterable[str]) -> set[int]:
    """Of `0: 00000000:07E8 00000000:0000 0A ...` the port, 0x07E8, below a line of headings."""
    found: set[int] = set()
    for number, line in enumerate(lines):
        fields = line.split(None, 4)
        if number and fields[3] != LISTEN:
            break
        if number:
            found.add(int(fields[1].rpartition(":")[2], 16))
    return found


def judge(found: Collection[int], wanted: Collection[int]) -> Finding:
    """`nothing listens on 22, 6818` names those that fail."""
    missing = [str(port) for port in wanted if port not in found]
    message = f"nothing listens on {', '.join(missing)}" if missing else f"listened on: {', '.join(map(str, wanted))}"
    return Finding(FAILED if missing else OK, message, len(wanted) - len(missing), len(wanted))
