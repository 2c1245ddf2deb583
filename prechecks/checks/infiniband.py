"""`infiniband`: the ports that a job needs are active and fast enough, and their error counters do not grow too much.

The check reads `state` (`4: ACTIVE`), `phys_state` (`5: LinkUp`), `rate` (`200 Gb/sec (4X HDR)`) and other files in
/sys/class/infiniband/<device>/ports/<number>/ (Documentation/ABI/stable/sysfs-class-infiniband; formats:
drivers/infiniband/core/sysfs.c).
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Mapping

from prechecks.check import COUNT, SECONDS, TEXT, TEXTS, Check, Setting, Settings
from prechecks.measure import system
from prechecks.verdict import ERROR, FAILED, OK, Context, Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    Texts = Mapping[str, str | None]

ROOT = "/sys/class/infiniband"
FILES = ("state", "phys_state", "rate", "link_layer")
# counter -> the value at which it stops (PortCounters of the InfiniBand Architecture Specification, 16.1.3.5;
# widths in bits: PORT_PMA_ATTR in drivers/infiniband/core/sysfs.c)
COUNTERS: Mapping[str, int] = {
    "symbol_error": 2**16 - 1,
    "link_error_recovery": 2**8 - 1,
    "link_downed": 2**8 - 1,
    "port_rcv_errors": 2**16 - 1,
    "port_rcv_remote_physical_errors": 2**16 - 1,
    "local_link_integrity_errors": 2**4 - 1,
    "excessive_buffer_overrun_errors": 2**4 - 1,
    "port_xmit_discards": 2**16 - 1,
}
# counters of the driver mlx5, 64 bits (drivers/infiniband/hw/mlx5/counters.c)
HW_COUNTERS = ("local_ack_timeout_err", "packet_seq_err", "out_of_sequence")


class Port(namedtuple("Port", "state phys_state rate link_layer")):
    """One port. A value is None if it cannot be read. `rate` is in Gb/s."""

    __slots__ = ()
    state: str | None  # NOP, DOWN, INIT, ARMED, ACTIVE, ACTIVE_DEFER
    phys_state: str | None
    rate: float | None
    link_layer: str | None  # InfiniBand or Ethernet


class Infiniband(Check):
    """Check RDMA ports, also Ethernet ports (RoCE) unless the site sets a link layer."""

    item = "infiniband"
    looks_at = "state, rate and error counters of the ports in `/sys/class/infiniband`, RoCE included"
    settings: Mapping[str, Setting] = {
        "ports": Setting(TEXTS, None, "ports such as mlx5_0/1 that must be active; null: any"),
        "link_layer": Setting(
            TEXT,
            None,
            "InfiniBand or Ethernet: only ports of this kind, if `ports` is null",
            ("InfiniBand", "Ethernet"),
        ),
        "count": Setting(COUNT, None, "active ports, at least; null: all of `ports`, else 1"),
        "rate": Setting(COUNT, None, "Gb/s, at least; a slower port does not count"),
        "window": Setting(SECONDS, "60m", "the time in which a counter may grow by its limit"),
        **{
            name: Setting(COUNT, None, "the counter's growth in the window, at most; null: not checked")
            for name in (*COUNTERS, *HW_COUNTERS)
        },
    }
    for_infiniband = True
    condition = "the job uses no InfiniBand"

    def look(self, context: Context, settings: Settings) -> Finding:
        """Judge the links first, then the growth of their counters."""
        own = self.own(settings)
        limits = {name: own[name] for name in (*COUNTERS, *HW_COUNTERS) if own.get(name) is not None}
        texts = measure(ROOT, limits)
        ports = {name: parse(each) for name, each in texts.items()}
        wanted = select_ports(ports, own.get("ports"), own.get("link_layer"))
        found = judge(ports, wanted, required_count(wanted, own), own.get("rate"))
        if not limits or found.verdict == FAILED:
            return found
        from prechecks.measure import growth  # noqa: PLC0415 - few sites set a limit

        there = [name for name in wanted if name in texts]
        counters = {f"{name}: {each}": system.number(texts[name][each]) for name in there for each in limits}
        remember = settings.get("remember", True)
        grown = growth.look(
            settings["state"], self.item, counters, limits, window_s=own["window"], ends=COUNTERS, remember=remember
        )
        return growth.worse_finding(found, grown)


def measure(root: str, counters: Settings) -> dict[str, Texts]:
    """Return the texts of the files of every port, by `device/number`. No other function reads them."""
    found: dict[str, Texts] = {}
    for device in system.entries(root):
        for number in system.entries(f"{root}/{device}/ports"):
            port = f"{root}/{device}/ports/{number}"
            paths = {name: f"{port}/{'hw_counters' if name in HW_COUNTERS else 'counters'}/{name}" for name in counters}
            paths |= {name: f"{port}/{name}" for name in FILES}
            found[f"{device}/{number}"] = {name: system.text(path) for name, path in paths.items()}
    return found


def parse(texts: Texts) -> Port:
    """Return the port: its states without the kernel's numbers, `4: ACTIVE` -> ACTIVE, its rate without the unit."""
    rate = (texts["rate"] or "").partition(" Gb/sec")[0]
    state, phys_state = ((texts[name] or "").partition(": ")[2] or None for name in ("state", "phys_state"))
    return Port(state, phys_state, float(rate) if rate.replace(".", "", 1).isdigit() else None, texts["link_layer"])


def select_ports(ports: Mapping[str, Port], named: list[str] | None, link_layer: str | None) -> list[str]:
    """Return the ports to check: the named ports, else all ports of the link layer.

    Raise ValueError for an invalid name: a typing error in the site file must not drain every node.
    """
    for name in named or ():
        if name.count("/") != 1:
            raise ValueError(f"infiniband.ports: found {name!r}; a device and a port such as mlx5_0/1 are accepted")
    return list(named or (name for name, port in ports.items() if link_layer in (None, port.link_layer)))


def required_count(wanted: list[str], own: Settings) -> int:
    """Return how many of the wanted ports must be active."""
    count: int | None = own.get("count")
    return count if count is not None else len(wanted) if own.get("ports") else 1


def judge(ports: Mapping[str, Port], wanted: list[str], least: int, rate: float | None) -> Finding:
    """Fail unless at least `least` of the wanted ports are active and not slower than `rate`.

    If unreadable ports could make up the number, return an error.
    """
    faults = {name: port_fault(ports.get(name), rate) for name in wanted}
    good = [name for name in wanted if faults[name] == ""]
    unread = [name for name in wanted if faults[name] is None]
    value = ", ".join(f"{name} {'unknown' if what is None else what or 'active'}" for name, what in faults.items())
    if len(good) >= least:
        return Finding(OK, f"{len(good)} active: {', '.join(good)}", value, least)
    if len(good) + len(unread) >= least:
        return Finding(ERROR, f"cannot be read: {', '.join(unread)}", value, least)
    bad = [f"{name} {what}" for name, what in faults.items() if what]
    return Finding(FAILED, f"{len(good)} of {least} active: {', '.join(bad or good) or 'no port'}", value, least)


def port_fault(port: Port | None, rate: float | None) -> str | None:
    """Return the fault of a port; empty if the port is fine, None if a value cannot be read."""
    if port is None:
        return "is not there"
    if port.state is None:
        return None
    if port.state != "ACTIVE":
        return f"{port.state} ({port.phys_state or 'physical state unknown'})"
    if rate is None:
        return ""
    if port.rate is None:
        return None
    return "" if port.rate >= rate else f"{port.rate:g} < {rate:g} Gb/s"
