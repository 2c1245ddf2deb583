"""`memory`: the memory of the node, what of it is available, and the errors that ECC has counted.

/proc/meminfo is in KiB (proc_meminfo(5)). MemTotal is less than what is plugged in, by what firmware and kernel keep.
The counters stand in /sys/devices/system/edac/mc/mcN/ (Documentation/ABI/testing/sysfs-devices-edac): of the time since
the driver was loaded, or since somebody wrote to `reset_counters` there, which a repair without a reboot calls for.
Without such a driver nothing is known of errors, which is no failure.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from prechecks import units
from prechecks.check import Check
from prechecks.setting import COUNT, FLAG, PATH, SIZE, Setting
from prechecks.verdict import FAILED, NODE_PROBLEM, OK, Context, Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CONTROLLERS = "/sys/devices/system/edac/mc"
FIELDS = {"total": "MemTotal", "available": "MemAvailable"}
COUNTERS = {"uncorrectable": "ue_count", "correctable": "ce_count"}


class Memory(Check):
    """`settings["memory"]`: two sizes in bytes and two numbers of errors; null: not looked at. The others are for
    prechecks.real_memory."""

    item = "memory"
    looks_at = (
        "the node's memory, what of it is available, and the errors that ECC has counted in each memory controller"
    )
    settings: Mapping[str, Setting] = {
        "total": Setting(SIZE, None, "the node must have more (MemTotal); null: not looked at"),
        "available": Setting(SIZE, None, "more must be available (MemAvailable); null: not looked at"),
        "uncorrectable": Setting(COUNT, 0, "ECC errors that a controller may have counted; more fail", optional=True),
        "correctable": Setting(COUNT, None, "the same of those that ECC has corrected; null: not looked at"),
        "slurm": Setting(FLAG, "yes", "yes: the node must have what slurm.conf says of it, RealMemory"),
        "slurm_conf": Setting(PATH, None, "that file; null: SLURM_CONF, else where Slurm usually has it"),
    }
    problem = NODE_PROBLEM
    condition = "nothing to look at on this site"
    forked = False  # the kernel's own counters

    def applies(self, context: Context, settings: Mapping[str, Any]) -> bool:
        """Where at least one of the four is set."""
        own = self.own(settings)
        return any(own.get(name) is not None for name in (*FIELDS, *COUNTERS))

    def look(self, context: Context, settings: Mapping[str, Any]) -> Finding:
        """Enough memory, and no more errors than are accepted."""
        own = self.own(settings)
        sizes = [name for name in FIELDS if own.get(name) is not None]
        counts = [name for name in COUNTERS if own.get(name) is not None]
        return judge(meminfo() if sizes else {}, errors(counts), own)


def meminfo() -> dict[str, int]:
    """Bytes of `total` and `available`."""
    with open("/proc/meminfo", encoding="ascii") as lines:  # noqa: PTH123 - as in prechecks.gpu
        return parse(lines)


def parse(lines: Iterable[str]) -> dict[str, int]:
    """The two lines of /proc/meminfo, in bytes."""
    names = {field: name for name, field in FIELDS.items()}
    pairs = (line.partition(":")[::2] for line in lines)
    return {names[field]: int(rest.split()[0]) * 1024 for field, rest in pairs if field in names}


def errors(counts: Iterable[str], root: str = CONTROLLERS) -> dict[str, dict[str, int]]:
    """What each memory controller has counted, `{"mc0": {"uncorrectable": 0}}`; empty where there is no driver."""
    try:
        controllers = sorted(name for name in os.listdir(root) if name[:2] == "mc" and name[2:].isdigit())  # noqa: PTH208
    except FileNotFoundError:
        return {}
    return {name: {count: _number(f"{root}/{name}/{COUNTERS[count]}") for count in counts} for name in controllers}


def _number(path: str) -> int:
    with open(path, encoding="ascii") as file:  # noqa: PTH123 - as in prechecks.gpu
        return int(file.read())


def judge(sizes: Mapping[str, int], counted: Mapping[str, Mapping[str, int]], wanted: Mapping[str, Any]) -> Finding:
    """`total 256 GB < 500 GB, 3 uncorrectable errors of mc1` names what fails; else what there is."""
    every, wrong = [], []
    for name, value in sizes.items():
        if wanted.get(name) is not None:
            every.append(f"{name} {units.compare_sizes(value, wanted[name])}")
            if value <= wanted[name]:
                wrong.append(every[-1])
    for controller, counts in counted.items():
        for name, count in counts.items():
            if count > wanted[name]:
                accepted = f", more than {wanted[name]}" if wanted[name] else ""
                wrong.append(f"{count} {name} memory errors of {controller}{accepted}")
    if any(wanted.get(name) is not None for name in COUNTERS):
        every.append(f"no more errors than accepted of {', '.join(counted)}" if counted else "no ECC counters")
    return Finding(FAILED if wrong else OK, ", ".join(wrong or every))
