"""`nic`: Ethernet interfaces are up, as fast and as wide as the site says, and their errors stand still.

Read from /sys/class/net/<name>/ (Documentation/ABI/testing/sysfs-class-net and sysfs-class-net-statistics): `operstate`
(RFC 2863, Documentation/networking/operstates.rst), `carrier`, `speed` in Mb/s, `mtu`, `statistics/`; of a bond
`bonding/slaves`, and of each of these `bonding_slave/mii_status` (Documentation/networking/bonding.rst).
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterable, Mapping

from prechecks import sysfs
from prechecks.check import Check
from prechecks.setting import COUNT, SECONDS, TEXTS, Setting
from prechecks.verdict import ERROR, FAILED, NODE_PROBLEM, OK, Context, Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Texts = Mapping[str, str | None]

ROOT = "/sys/class/net"
# setting -> the counters that it limits; carrier_down_count is there from Linux 4.16 on
COUNTERS: Mapping[str, tuple[str, ...]] = {
    "errors": ("statistics/rx_errors", "statistics/tx_errors"),
    "dropped": ("statistics/rx_dropped", "statistics/tx_dropped"),
    "link_losses": ("carrier_down_count",),
}
UP = ("up", "unknown")  # operstate; unknown: the driver tells no more than its carrier
UNKNOWN_SPEED = 2**32 - 1  # -1, SPEED_UNKNOWN of ethtool.h, as kernels that print it without a sign have it


class Interface(namedtuple("Interface", "operstate carrier speed mtu slaves")):
    """One interface, None for what cannot be read or is not known. `slaves`: those of a bond with what they are."""

    __slots__ = ()
    operstate: str | None
    carrier: int | None
    speed: int | None  # Mb/s
    mtu: int | None  # bytes
    slaves: Mapping[str, str | None]


class Nic(Check):
    """Only the interfaces that the site names: what else a node has is its own affair."""

    item = "nic"
    looks_at = "state, speed, MTU and error counters of the interfaces that the site names, and the slaves of a bond"
    settings: Mapping[str, Setting] = {
        "interfaces": Setting(TEXTS, (), "such as eth0 or bond0, whose slaves must all be up; none: not checked"),
        "speed": Setting(COUNT, None, "Mb/s, at least"),
        "mtu": Setting(COUNT, None, "bytes, exactly"),
        "least_mtu": Setting(COUNT, None, "bytes, at least"),
        "window": Setting(SECONDS, "60m", "the time that the limits below are for"),
        "errors": Setting(COUNT, None, "rx_errors and tx_errors may each grow by this in the window"),
        "dropped": Setting(COUNT, None, "rx_dropped and tx_dropped; the same"),
        "link_losses": Setting(COUNT, None, "carrier_down_count; the same"),
    }
    problem = NODE_PROBLEM
    condition = "no interfaces are named on this site"

    def applies(self, context: Context, settings: Mapping[str, Any]) -> bool:
        """Wherever the site names interfaces."""
        return bool(self.own(settings).get("interfaces"))

    def look(self, context: Context, settings: Mapping[str, Any]) -> Finding:
        """The links first, then what their counters did since the last times."""
        own = self.own(settings)
        asked = {name: own[name] for name in COUNTERS if own.get(name) is not None}
        paths = [path for name in asked for path in COUNTERS[name]]
        texts = measure(ROOT, own["interfaces"], paths)
        found = judge({name: None if each is None else parse(each) for name, each in texts.items()}, own)
        if not asked or found.verdict == FAILED:
            return found
        from prechecks import growth  # noqa: PLC0415 - few sites set a limit

        limits = {kernels(path): limit for name, limit in asked.items() for path in COUNTERS[name]}
        there = [(name, each) for name, each in texts.items() if each is not None]
        counters = {f"{name}: {kernels(path)}": sysfs.number(each[path]) for name, each in there for path in paths}
        remember = settings.get("remember", True)
        grown = growth.look(settings["state"], self.item, counters, limits, window_s=own["window"], remember=remember)
        return growth.worse(found, grown)


def kernels(path: str) -> str:
    """What the kernel calls the counter in a file."""
    return path.rpartition("/")[2]


def measure(root: str, names: Iterable[str], paths: Iterable[str]) -> dict[str, Texts | None]:
    """What the files of these interfaces say, None for one that is not there; the only part that reads.

    For a bond, `slave <name>` is the word of the bonding driver for each of its slaves, or else their operstate.
    """
    there, found = sysfs.entries(root), dict[str, "Texts | None"]()
    for name in names:
        found[name] = None
        if name in there:
            files = ("operstate", "carrier", "speed", "mtu", *paths)
            texts = {file: sysfs.text(f"{root}/{name}/{file}") for file in files}
            for slave in (sysfs.text(f"{root}/{name}/bonding/slaves") or "").split():
                word = sysfs.text(f"{root}/{slave}/bonding_slave/mii_status")
                texts[f"slave {slave}"] = word or sysfs.text(f"{root}/{slave}/operstate")
            found[name] = texts
    return found


def parse(texts: Texts) -> Interface:
    """Numbers for texts; a speed below 1 is not known."""
    speed = sysfs.number(texts["speed"])
    return Interface(
        texts["operstate"],
        sysfs.number(texts["carrier"]),
        None if speed is None or speed <= 0 or speed == UNKNOWN_SPEED else speed,
        sysfs.number(texts["mtu"]),
        {name.partition(" ")[2]: word for name, word in texts.items() if name.startswith("slave ")},
    )


def judge(interfaces: Mapping[str, Interface | None], wanted: Mapping[str, Any]) -> Finding:
    """All of them are as they should be; one fault anywhere counts more than what is not known elsewhere."""
    bad: list[str] = []
    unknown: list[str] = []
    value: list[str] = []
    for name, each in interfaces.items():
        value.append(f"{name} {'missing' if each is None else f'{each.operstate} {each.speed} Mb/s mtu {each.mtu}'}")
        for fault, known in (("is not there", True),) if each is None else faults(each, wanted):
            (bad if known else unknown).append(f"{name} {fault}")
    message = "; ".join(bad or unknown) or f"up: {', '.join(interfaces)}"
    return Finding(FAILED if bad else ERROR if unknown else OK, message, ", ".join(value))


def faults(found: Interface, wanted: Mapping[str, Any]) -> Iterable[tuple[str, bool]]:
    """What is wrong with one interface, and whether that is known or cannot be told."""
    if found.operstate not in UP:
        yield f"is {found.operstate or 'in a state that cannot be read'}", found.operstate is not None
        return  # the rest follows from it
    if found.carrier != 1:
        yield ("has no carrier" if found.carrier == 0 else "tells no carrier"), found.carrier == 0
    for slave, word in found.slaves.items():
        if word != "up":
            yield f"has a slave {slave} that is {word or 'unreadable'}", word is not None
    if wanted.get("speed") is not None and (found.speed is None or found.speed < wanted["speed"]):
        yield f"runs at {found.speed or 'an unknown speed'} < {wanted['speed']} Mb/s", found.speed is not None
    if wanted.get("mtu") is not None and found.mtu != wanted["mtu"]:
        yield f"has an mtu of {found.mtu}, not {wanted['mtu']}", found.mtu is not None
    if wanted.get("least_mtu") is not None and (found.mtu is None or found.mtu < wanted["least_mtu"]):
        yield f"has an mtu of {found.mtu} < {wanted['least_mtu']}", found.mtu is not None
