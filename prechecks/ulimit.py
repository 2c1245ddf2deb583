"""`ulimit`: soft limits that InfiniBand needs must be more than their thresholds (row A4)."""

from __future__ import annotations

from collections.abc import Mapping

from prechecks.check import Check
from prechecks.setting import COUNT, Setting
from prechecks.units import compare
from prechecks.verdict import FAILED, NODE_PROBLEM, OK, Context, Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# setting: (name in `ulimit -a`, constant of `resource`, bytes in the unit of `ulimit -a`)
LIMITS = {
    "max_locked_memory_kb": ("max locked memory", "RLIMIT_MEMLOCK", 1024),
    "open_files": ("open files", "RLIMIT_NOFILE", 1),
    "stack_size_kb": ("stack size", "RLIMIT_STACK", 1024),
    "max_user_processes": ("max user processes", "RLIMIT_NPROC", 1),
}


class Ulimit(Check):
    """The limits of the process that asks: a prolog's are slurmd's, a job step's are the user's."""

    item = "ulimit"
    looks_at = "soft limits of the process that asks, in the units of `ulimit -a`"
    settings: Mapping[str, Setting] = {
        "max_locked_memory_kb": Setting(COUNT, 16000, "KiB; the soft limit must be more, unlimited passes"),
        "open_files": Setting(COUNT, 1000000, "files; the same"),
        "stack_size_kb": Setting(COUNT, 8000, "KiB; the same"),
        "max_user_processes": Setting(COUNT, 1000000, "processes; the same"),
    }
    problem = NODE_PROBLEM
    condition = "the job uses no InfiniBand"
    forked = False

    def applies(self, context: Context, settings: Mapping[str, Any]) -> bool:
        """To jobs that use InfiniBand."""
        return context.infiniband or self.mandatory(settings)

    def look(self, context: Context, settings: Mapping[str, Any]) -> Finding:
        """Every limit is more than its threshold."""
        return judge(soft_limits(), settings["ulimit"])


def soft_limits() -> dict[str, int | None]:
    """This process's soft limits in the units of `ulimit -a`; None is unlimited."""
    import resource  # noqa: PLC0415 - not needed by most jobs

    limits: dict[str, int | None] = {}
    for setting, (_, constant, unit) in LIMITS.items():
        soft = resource.getrlimit(getattr(resource, constant))[0]
        limits[setting] = None if soft == resource.RLIM_INFINITY else soft // unit
    return limits


def judge(limits: Mapping[str, int | None], thresholds: Mapping[str, int | None]) -> Finding:
    """Every limit must be more than its threshold; unlimited is, and a threshold of null asks for nothing."""
    every, low = [], []
    for setting, (name, _, _) in LIMITS.items():
        limit, threshold = limits[setting], thresholds.get(setting)
        every.append(f"{name} {'unlimited' if limit is None else limit}")
        if limit is not None and threshold is not None and limit <= threshold:
            low.append(f"{name} {limit} {compare(limit, threshold)} {threshold}")
    wanted = ", ".join(f"{LIMITS[setting][0]} {value}" for setting, value in thresholds.items() if value is not None)
    return Finding(FAILED if low else OK, ", ".join(low or every), ", ".join(every), wanted)
