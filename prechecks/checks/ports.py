"""`ports`: a process listens on each TCP port that the site names, on any address.

The check reads /proc/net/tcp and tcp6 of this network namespace. They list all listening sockets first, then the
connections (Documentation/networking/proc_net_tcp.rst), so the check stops at the first connection. It is `shared`,
because an update may break a daemon on every node.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from prechecks.check import PORTS, Check, Setting, Settings
from prechecks.verdict import FAILED, OK, Context, Finding

TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
LISTEN = "0A"  # TCP_LISTEN of <net/tcp_states.h>, as the tables write it


class Ports(Check):
    """Read `settings["ports"]["listening"]`, port numbers."""

    item = "ports"
    looks_at = "TCP ports, IPv4 and IPv6"
    settings: Mapping[str, Setting] = {
        "listening": Setting(PORTS, (), "TCP ports that something must listen on"),
    }
    shared = True
    needs = ("listening",)
    condition = "no ports of this site"
    forked = False  # /proc only, which cannot hang

    def look(self, context: Context, settings: Settings) -> Finding:
        """Fail for a port without a listener."""
        return judge(listening(), self.own(settings)["listening"])


def listening(tables: Iterable[str] = TABLES) -> set[int]:
    """Return the ports that have a listener. A kernel without IPv6 has no tcp6: ignore that."""
    found: set[int] = set()
    for table in tables:
        try:
            with open(table, encoding="ascii") as lines:  # noqa: PTH123 - as in prechecks.checks.gpu
                found |= parse(lines)
        except FileNotFoundError:
            continue
    return found


def parse(lines: Iterable[str]) -> set[int]:
    """Return the port of each listening socket. `0: 00000000:07E8 00000000:0000 0A ...` is port 0x07E8."""
    found: set[int] = set()
    for number, line in enumerate(lines):
        fields = line.split(None, 4)
        if number and fields[3] != LISTEN:
            break
        if number:
            found.add(int(fields[1].rpartition(":")[2], 16))
    return found


def judge(found: Collection[int], wanted: Collection[int]) -> Finding:
    """Name the ports that fail: `nothing listens on 22, 6818`."""
    missing = [str(port) for port in wanted if port not in found]
    message = f"nothing listens on {', '.join(missing)}" if missing else f"listened on: {', '.join(map(str, wanted))}"
    return Finding(FAILED if missing else OK, message, len(wanted) - len(missing), len(wanted))
