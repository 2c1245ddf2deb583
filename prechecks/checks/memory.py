"""`memory`, `memory available`: the node's memory, its available memory, and the errors that ECC has counted.

/proc/meminfo is in KiB (proc_meminfo(5)). MemTotal excludes the memory that firmware and kernel reserve. The ECC
counters are in /sys/devices/system/edac/mc/mcN/ (Documentation/ABI/testing/sysfs-devices-edac). They count since the
EDAC driver was loaded, or since a write to `reset_counters` there. After a repair without a reboot, write to that file.
A node without such a driver has no counters and passes.

`memory slurm`: the node has at least its RealMemory in slurm.conf, which Slurm uses to place jobs. slurmd also reports
MemTotal, and Slurm compares the two, but only when the node registers. This check also finds a later change. It reads
only slurm.conf, and is skipped if that file is unreadable or has no RealMemory.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from prechecks.check import COUNT, FLAG, PATH, SIZE, Check, Setting, Settings
from prechecks.verdict import FAILED, OK, SKIPPED, Context, Finding, compare_sizes, format_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from prechecks.measure.slurmconf import Node

CONTROLLERS = "/sys/devices/system/edac/mc"
FIELDS = {"total": "MemTotal", "available": "MemAvailable"}
COUNTERS = {"uncorrectable": "ue_count", "correctable": "ce_count"}
MB = 1 << 20


class Memory(Check):
    """Read `settings["memory"]`: the limit `total` in bytes and the two limits of errors; null: no limit.

    The other settings belong to the classes MemoryAvailable and RealMemory.
    """

    item = "memory"
    looks_at = "the node's memory, and the errors that ECC has counted in each memory controller"
    needs = ("total", *COUNTERS)
    settings: Mapping[str, Setting] = {
        "total": Setting(SIZE, None, "MemTotal must be more; null: not checked"),
        "available": Setting(SIZE, None, "MemAvailable must be more; null: not checked"),
        "uncorrectable": Setting(COUNT, 0, "uncorrectable ECC errors of a controller, at most", optional=True),
        "correctable": Setting(COUNT, None, "corrected ECC errors of a controller, at most; null: not checked"),
        "slurm": Setting(FLAG, "yes", "yes: the node must have at least its RealMemory of slurm.conf"),
        "slurm_conf": Setting(PATH, None, "path of slurm.conf; null: SLURM_CONF, else Slurm's usual places"),
    }
    condition = "no threshold on this site"
    forked = False  # the kernel's own counters

    def look(self, context: Context, settings: Settings) -> Finding:
        """Fail for too little memory, or more errors than accepted."""
        own = self.own(settings)
        wanted = {name: own[name] for name in self.needs if own.get(name) is not None}
        found = meminfo() if wanted.keys() & FIELDS.keys() else {}
        sizes = {name: found[name] for name in wanted if name in FIELDS}
        return judge(sizes, errors([name for name in wanted if name in COUNTERS]), wanted)


class MemoryAvailable(Memory):
    """Read `settings["memory"]`: the limit `available` in bytes; null: no limit."""

    item = "memory.available"
    looks_at = "the node's available memory"
    section = "memory"
    transient = True
    path = "/dev/shm"  # noqa: S108 - read, never written: files there take memory
    needs = ("available",)


class RealMemory(Check):
    """Read `settings["memory"]`: `slurm`, whether to compare, and `slurm_conf`, the file."""

    item = "memory.slurm"
    looks_at = "the node's memory, against RealMemory of this node in slurm.conf"
    section = "memory"
    settings = Memory.settings
    hooks = ("periodic", "hand")
    needs = ("slurm",)
    condition = "not wanted on this site"
    quick = True

    def look(self, context: Context, settings: Settings) -> Finding:
        """Compare with the slurm.conf of the setting, else with the first one found in the usual places."""
        from prechecks.measure import slurmconf  # noqa: PLC0415 - no prolog needs it

        own = self.own(settings).get("slurm_conf")
        places = (own,) if own else tuple(filter(None, (os.environ.get("SLURM_CONF"), *slurmconf.PLACES)))
        path = next((place for place in places if os.access(place, os.F_OK)), "")
        if not path:
            return Finding(SKIPPED, f"no slurm.conf here: {', '.join(places)}")
        self.doing(path)
        try:
            known = slurmconf.node(path, context.node)
        except (OSError, ValueError) as error:
            return Finding(SKIPPED, f"{path} cannot be read: {error}")
        return judge_slurm(meminfo()["total"], known, f"{context.node} in {path}")


def meminfo() -> dict[str, int]:
    """Return `total` and `available` in bytes."""
    with open("/proc/meminfo", encoding="ascii") as lines:  # noqa: PTH123 - as in prechecks.checks.gpu
        return parse(lines)


def parse(lines: Iterable[str]) -> dict[str, int]:
    """Return the values of FIELDS from the lines of /proc/meminfo, in bytes."""
    names = {field: name for name, field in FIELDS.items()}
    pairs = (line.partition(":")[::2] for line in lines)
    return {names[field]: int(rest.split()[0]) * 1024 for field, rest in pairs if field in names}


def errors(counts: Iterable[str], root: str = CONTROLLERS) -> dict[str, dict[str, int]]:
    """Return the counters of each memory controller, `{"mc0": {"uncorrectable": 0}}`; empty without a driver."""
    try:
        controllers = sorted(name for name in os.listdir(root) if name[:2] == "mc" and name[2:].isdigit())  # noqa: PTH208
    except FileNotFoundError:
        return {}
    return {name: {count: _number(f"{root}/{name}/{COUNTERS[count]}") for count in counts} for name in controllers}


def _number(path: str) -> int:
    with open(path, encoding="ascii") as file:  # noqa: PTH123 - as in prechecks.checks.gpu
        return int(file.read())


def judge(sizes: Mapping[str, int], counted: Mapping[str, Mapping[str, int]], wanted: Settings) -> Finding:
    """Fail with `total 256 GB < 500 GB, 3 uncorrectable memory errors of mc1`, or pass and list the values."""
    every, wrong = [], []
    for name, value in sizes.items():
        if wanted.get(name) is not None:
            every.append(f"{name} {compare_sizes(value, wanted[name])}")
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


def judge_slurm(total: int, known: Node | None, where: str) -> Finding:
    """Fail if the node has less memory than slurmctld accepts. Count in whole MiB, as slurmctld does."""
    if known is None:
        return Finding(SKIPPED, f"there is no {where}")
    if known.overrides:
        return Finding(SKIPPED, "SlurmdParameters=config_overrides: the node may have less than slurm.conf says")
    if known.megabytes is None:
        return Finding(SKIPPED, f"no RealMemory of {where}")
    wanted = int(known.megabytes * known.percent / 100)
    part = "" if known.percent == 100 else f", of which {known.percent:g} % must be"
    message = f"total {format_size(total)}: {total // MB} MB, RealMemory {known.megabytes} MB{part}"
    return Finding(OK if total // MB >= wanted else FAILED, message, total, wanted * MB)
