"""`nic`: interfaces are up with the speed and MTU that the site sets, and their errors do not grow too much.

The check reads files in /sys/class/net/<name>/ (Documentation/ABI/testing/sysfs-class-net and
sysfs-class-net-statistics): `operstate` (RFC 2863, Documentation/networking/operstates.rst), `carrier`, `speed` in
Mb/s, `mtu` and `statistics/`. For a bond it also reads `bonding/slaves`, and for each slave
`bonding_slave/mii_status` (Documentation/networking/bonding.rst).
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterable, Mapping

from prechecks.check import COUNT, SECONDS, TEXTS, Check, Setting, Settings
from prechecks.measure import system
from prechecks.verdict import ERROR, FAILED, OK, Context, Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    Texts = Mapping[str, str | None]

ROOT = "/sys/class/net"
# setting -> the counters that it limits; carrier_down_count exists from Linux 4.16 on
COUNTERS: Mapping[str, tuple[str, ...]] = {
    "errors": ("statistics/rx_errors", "statistics/tx_errors"),
    "dropped": ("statistics/rx_dropped", "statistics/tx_dropped"),
    "link_losses": ("carrier_down_count",),
}
UP = ("up", "unknown")  # operstate; `unknown`: the driver reports only the carrier
UNKNOWN_SPEED = 2**32 - 1  # -1, SPEED_UNKNOWN of ethtool.h, which some kernels print without a sign


class Interface(namedtuple("Interface", "operstate carrier speed mtu slaves")):
    """One interface. A value is None if it is unknown. `slaves`: the state of each slave of a bond."""

    __slots__ = ()
    operstate: str | None
    carrier: int | None
    speed: int | None  # Mb/s
    mtu: int | None  # bytes
    slaves: Mapping[str, str | None]


class Nic(Check):
    """Check only the interfaces that the site names."""

    item = "nic"
    looks_at = "state, speed, MTU and error counters of the interfaces that the site names, and the slaves of a bond"
    settings: Mapping[str, Setting] = {
        "interfaces": Setting(
            TEXTS, (), "interfaces that must be up: eth0, or bond0 with all its slaves; none: not checked"
        ),
        "speed": Setting(COUNT, None, "Mb/s, at least"),
        "mtu": Setting(COUNT, None, "bytes, exactly"),
        "least_mtu": Setting(COUNT, None, "bytes, at least"),
        "window": Setting(SECONDS, "60m", "the time in which a counter may grow by its limit"),
        "errors": Setting(COUNT, None, "growth of rx_errors and of tx_errors in the window, at most"),
        "dropped": Setting(COUNT, None, "growth of rx_dropped and of tx_dropped in the window, at most"),
        "link_losses": Setting(COUNT, None, "carrier_down_count; the same"),
    }
    patient = True  # the links of a switch are down while it restarts
    needs = ("interfaces",)
    condition = "no interfaces are named on this site"

    def look(self, context: Context, settings: Settings) -> Finding:
        """Judge the links first, then the growth of their counters."""
        own = self.own(settings)
        asked = {name: own[name] for name in COUNTERS if own.get(name) is not None}
        paths = [path for name in asked for path in COUNTERS[name]]
        texts = measure(ROOT, own["interfaces"], paths)
        found = judge({name: None if each is None else parse(each) for name, each in texts.items()}, own)
        if not asked or found.verdict == FAILED:
            return found
        from prechecks.measure import growth  # noqa: PLC0415 - few sites set a limit

        limits = {counter_name(path): limit for name, limit in asked.items() for path in COUNTERS[name]}
        there = [(name, each) for name, each in texts.items() if each is not None]
        counters = {
            f"{name}: {counter_name(path)}": system.number(each[path]) for name, each in there for path in paths
        }
        remember = settings.get("remember", True)
        grown = growth.look(settings["state"], self.item, counters, limits, window_s=own["window"], remember=remember)
        return growth.worse_finding(found, grown)


def counter_name(path: str) -> str:
    """Return the kernel's name of the counter in a file."""
    return path.rpartition("/")[2]


def measure(root: str, names: Iterable[str], paths: Iterable[str]) -> dict[str, Texts | None]:
    """Return the texts of the files of these interfaces; None for a missing interface. Only this function reads files.

    For a bond, `slave <name>` has the bonding driver's state of the slave, or else the slave's operstate.
    """
    there, found = system.entries(root), dict[str, "Texts | None"]()
    for name in names:
        found[name] = None
        if name in there:
            files = ("operstate", "carrier", "speed", "mtu", *paths)
            texts = {file: system.text(f"{root}/{name}/{file}") for file in files}
            for slave in (system.text(f"{root}/{name}/bonding/slaves") or "").split():
                word = system.text(f"{root}/{slave}/bonding_slave/mii_status")
                texts[f"slave {slave}"] = word or system.text(f"{root}/{slave}/operstate")
            found[name] = texts
    return found


def parse(texts: Texts) -> Interface:
    """Convert the texts to an interface. A speed below 1 or of UNKNOWN_SPEED is unknown."""
    speed = system.number(texts["speed"])
    return Interface(
        texts["operstate"],
        system.number(texts["carrier"]),
        None if speed is None or speed <= 0 or speed == UNKNOWN_SPEED else speed,
        system.number(texts["mtu"]),
        {name.partition(" ")[2]: word for name, word in texts.items() if name.startswith("slave ")},
    )


def judge(interfaces: Mapping[str, Interface | None], wanted: Settings) -> Finding:
    """Fail if an interface has a certain fault. If it has only unknown values, return an error."""
    bad: list[str] = []
    unknown: list[str] = []
    value: list[str] = []
    for name, each in interfaces.items():
        value.append(f"{name} {'missing' if each is None else f'{each.operstate} {each.speed} Mb/s mtu {each.mtu}'}")
        for fault, known in (("is not there", True),) if each is None else faults(each, wanted):
            (bad if known else unknown).append(f"{name} {fault}")
    message = "; ".join(bad or unknown) or f"up: {', '.join(interfaces)}"
    return Finding(FAILED if bad else ERROR if unknown else OK, message, ", ".join(value))


def faults(found: Interface, wanted: Settings) -> Iterable[tuple[str, bool]]:
    """Yield each fault of one interface, and whether the fault is certain or its value is unknown."""
    if found.operstate not in UP:
        yield f"is {found.operstate or 'in a state that cannot be read'}", found.operstate is not None
        return  # the other faults follow from it
    if found.carrier != 1:
        yield ("has no carrier" if found.carrier == 0 else "has an unknown carrier"), found.carrier == 0
    for slave, word in found.slaves.items():
        if word != "up":
            yield f"has a slave {slave} that is {word or 'unreadable'}", word is not None
    if wanted.get("speed") is not None and (found.speed is None or found.speed < wanted["speed"]):
        yield f"runs at {found.speed or 'an unknown speed'} < {wanted['speed']} Mb/s", found.speed is not None
    if wanted.get("mtu") is not None and found.mtu != wanted["mtu"]:
        yield f"has an mtu of {found.mtu}, not {wanted['mtu']}", found.mtu is not None
    if wanted.get("least_mtu") is not None and (found.mtu is None or found.mtu < wanted["least_mtu"]):
        yield f"has an mtu of {found.mtu} < {wanted['least_mtu']}", found.mtu is not None
