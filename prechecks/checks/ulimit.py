"""`ulimit`: the soft limits that InfiniBand needs must be more than their thresholds."""

from __future__ import annotations

from collections.abc import Mapping

from prechecks.check import COUNT, Check, Setting, Settings
from prechecks.verdict import FAILED, OK, Context, Finding, compare

# setting: (name in `ulimit -a`, constant of `resource`, bytes in the unit of `ulimit -a`)
LIMITS = {
    "max_locked_memory_kb": ("max locked memory", "RLIMIT_MEMLOCK", 1024),
    "open_files": ("open files", "RLIMIT_NOFILE", 1),
    "stack_size_kb": ("stack size", "RLIMIT_STACK", 1024),
    "max_user_processes": ("max user processes", "RLIMIT_NPROC", 1),
}


class Ulimit(Check):
    """Check the limits of this process. In a prolog they are slurmd's, in a job step the user's."""

    item = "ulimit"
    looks_at = "soft limits of the checking process, in the units of `ulimit -a`"
    settings: Mapping[str, Setting] = {
        "max_locked_memory_kb": Setting(COUNT, 16000, "KiB; the soft limit must be more or unlimited"),
        "open_files": Setting(COUNT, 1000000, "files; the same"),
        "stack_size_kb": Setting(COUNT, 8000, "KiB; the same"),
        "max_user_processes": Setting(COUNT, 1000000, "processes; the same"),
    }
    for_infiniband = True
    shared = True  # a site sets the limits for all its nodes
    condition = "the job uses no InfiniBand"
    forked = False

    def look(self, context: Context, settings: Settings) -> Finding:
        """Fail for a limit that is not more than its threshold."""
        return judge(soft_limits(), settings["ulimit"])


def soft_limits() -> dict[str, int | None]:
    """Return this process's soft limits in the units of `ulimit -a`; None means unlimited."""
    import resource  # noqa: PLC0415 - not needed by most jobs

    limits: dict[str, int | None] = {}
    for setting, (_, constant, unit) in LIMITS.items():
        soft = resource.getrlimit(getattr(resource, constant))[0]
        limits[setting] = None if soft == resource.RLIM_INFINITY else soft // unit
    return limits


def judge(limits: Mapping[str, int | None], thresholds: Mapping[str, int | None]) -> Finding:
    """Fail for a limit that is not more than its threshold. Unlimited passes. A threshold of null is ignored."""
    every, low = [], []
    for setting, (name, _, _) in LIMITS.items():
        limit, threshold = limits[setting], thresholds.get(setting)
        every.append(f"{name} {'unlimited' if limit is None else limit}")
        if limit is not None and threshold is not None and limit <= threshold:
            low.append(f"{name} {limit} {compare(limit, threshold)} {threshold}")
    wanted = ", ".join(f"{LIMITS[setting][0]} {value}" for setting, value in thresholds.items() if value is not None)
    return Finding(FAILED if low else OK, ", ".join(low or every), ", ".join(every), wanted)
