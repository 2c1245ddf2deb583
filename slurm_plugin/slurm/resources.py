"""Records of what nodes have, what jobs have of it, and when nodes were out of service."""

import re
from datetime import datetime
from typing import NamedTuple

# `gpu:a100:2(IDX:0-1)`, `shard:a100:3(2/4,1/4)`, `gpu:4(S:0-1)`, `bandwidth:4G`
_GRES = re.compile(r"(?P<name>[^\s:,()]+)(?::(?P<type>[^\s:,()]+))?:(?P<count>[0-9]+)[KMGTP]?(?:\((?P<more>[^)]*)\))?")
_INDEXES = re.compile(r"IDX:([0-9]{1,4}(?:-[0-9]{1,4})?(?:,[0-9]{1,4}(?:-[0-9]{1,4})?)*)", re.ASCII)


class Gres(NamedTuple):
    """Devices of one name and type: what a node has, or what is in use. `indexes`: their numbers, if Slurm has any."""

    name: str  # gpu
    type: str  # a100; empty without types
    amount: int
    indexes: frozenset[int] = frozenset()


class Resources(NamedTuple):
    """What a node has, and what jobs have of that. A number that Slurm does not give is 0."""

    cpus: int = 0
    cpus_used: int = 0
    memory_mb: int = 0
    memory_used_mb: int = 0
    devices: tuple[Gres, ...] = ()
    used: tuple[Gres, ...] = ()
    features: tuple[str, ...] = ()
    system: str = ""  # the kernel's name and release: `Linux 6.1.0-18-amd64`; empty until its slurmd has registered

    def has(self, name: str, kind: str = "") -> int:
        """Return how many devices of this name, and of this type if it is given, the node has."""
        return _count(self.devices, name, kind)

    def in_use(self, name: str, kind: str = "") -> int:
        """Return how many devices of this name, and of this type if it is given, jobs have."""
        return _count(self.used, name, kind)


class DeviceUse(NamedTuple):
    """The devices that one job has on one node."""

    job_id: int
    node: str
    devices: tuple[Gres, ...]


class Event(NamedTuple):
    """A time during which a node was out of service, as slurmdbd has it."""

    start: datetime
    end: datetime | None  # None: it still is
    state: str
    user: str  # the author of the reason: `root`, or `slurm` for slurmctld
    reason: str


def gres(text: str) -> tuple[Gres, ...]:
    """Parse a list of devices: `gpu:a100:2(IDX:0-1),shard:0`. Leave out what has another form, such as `N/A`."""
    return tuple(
        Gres(each["name"], each["type"] or "", int(each["count"]), _numbers(each["more"] or ""))
        for each in _GRES.finditer(text)
    )


def _numbers(text: str) -> frozenset[int]:
    """Return the numbers in `IDX:0-1,3`; empty for another text, such as `IDX:N/A` or `S:0-1`."""
    found = _INDEXES.fullmatch(text)
    ranges = (each.partition("-") for each in found[1].split(",")) if found else ()
    return frozenset(number for low, _, high in ranges for number in range(int(low), int(high or low) + 1))


def _count(devices: tuple[Gres, ...], name: str, kind: str) -> int:
    return sum(each.amount for each in devices if each.name == name and kind in ("", each.type))
