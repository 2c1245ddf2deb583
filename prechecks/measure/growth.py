"""Measure how much counters grew lately. They count since the boot, so a new sample is compared with earlier samples.

The name of a counter is its device and the kernel's name of the counter, `mlx5_0/1: link_downed`. prechecks.boot_state
stores the samples, because counters restart at a boot: `samples` is a list of [seconds, {counter: value}]. The seconds
are CLOCK_BOOTTIME, which cannot be set back (clock_gettime(2)).
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise

from prechecks import boot_state
from prechecks.verdict import ERROR, FAILED, OK, Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Sample = tuple[float, Mapping[str, int]]
    Growth = Mapping[str, tuple[int, float]]  # counter -> its increase, and the seconds that it took

STEPS = 12  # samples in a window; with more samples the window slides in smaller steps


def look(
    state: str,
    item: str,
    counters: Mapping[str, int | None],
    limits: Mapping[str, int],
    *,
    window_s: float,
    ends: Mapping[str, int] | None = None,
    remember: bool = True,
) -> Finding:
    """Fail for a counter that grew by more than its limit in a window. If this is root, store the sample.

    The keys of `limits` and `ends` (the largest values) are the kernel's names. `remember` is False for a manual check:
    its window may be shorter, and samples of the longer window would be lost. Raise OSError as boot_state.load does.
    """
    known = {name: value for name, value in counters.items() if value is not None}
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    earlier = window_samples(parse(boot_state.load(state, item), now), now, window_s)
    samples = window_samples([*earlier, (now, known)], now, window_s)
    if remember and samples[-1][0] == now and os.geteuid() == 0:
        with suppress(OSError):  # if /run is full, the next check compares with an older sample
            boot_state.save(state, item, {"samples": samples})
    grown = growth([*earlier, (now, known)])
    return worse_finding(judge(grown, limits, window_s), unreadable(counters, ends or {}))


def parse(values: Mapping[str, Any], now: float) -> list[Sample]:
    """Return the stored samples before `now`, oldest first; none if they are malformed."""
    try:
        samples = [
            (float(at), {str(name): int(value) for name, value in counters.items()})
            for at, counters in values["samples"]
        ]
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return []
    return sorted((sample for sample in samples if sample[0] < now), key=lambda sample: sample[0])


def window_samples(samples: Sequence[Sample], now: float, window_s: float) -> list[Sample]:
    """Return the samples, oldest first, that a window that ends at `now` needs.

    These are samples in the window, at least 1/STEPS of the window apart, and the last sample before the window: after
    a long pause there is no other sample to compare with.
    """
    chosen: list[Sample] = []
    for sample in samples:
        if sample[0] <= now - window_s:
            chosen = [sample]
        elif not chosen or sample[0] - chosen[-1][0] >= window_s / STEPS:
            chosen.append(sample)
    return chosen


def growth(samples: Sequence[Sample]) -> Growth:
    """Return the increase of each counter of the last sample, and the seconds since the first sample that has it.

    If a counter decreased, it restarted at 0 (a reset, a driver's restart, a 32-bit overflow). Its new value is then a
    lower bound of the increase.
    """
    found: dict[str, tuple[int, float]] = {}
    for name in samples[-1][1]:
        seen = [(at, counters[name]) for at, counters in samples if name in counters]
        steps = [after - before if after >= before else after for (_, before), (_, after) in pairwise(seen)]
        if steps:
            found[name] = (sum(steps), seen[-1][0] - seen[0][0])
    return found


def judge(grown: Growth, limits: Mapping[str, int], window_s: float) -> Finding:
    """Fail for a counter that grew by more than its limit in a window. For a longer time the limit is proportional."""
    over = []
    for name, (increase, seconds) in grown.items():
        limit = limits[counter_name(name)]
        if increase > limit * max(1.0, seconds / window_s):
            over.append(f"{name} +{increase} in {span(seconds)} > {limit} in {span(window_s)}")
    return Finding(FAILED if over else OK, ", ".join(over))


def unreadable(counters: Mapping[str, int | None], ends: Mapping[str, int]) -> Finding:
    """Return an error for counters that cannot be read, or that have stopped at their largest value."""
    missing = [name for name, value in counters.items() if value is None]
    ended = [name for name, value in counters.items() if value is not None and value == ends.get(counter_name(name))]
    if missing:
        return Finding(ERROR, f"cannot be read: {', '.join(missing)}")
    if ended:
        return Finding(ERROR, f"at the end of its range, reset it with perfquery -R: {', '.join(ended)}")
    return Finding(OK, "")


def counter_name(name: str) -> str:
    """Return the kernel's name of a counter."""
    return name.rpartition(" ")[2]


def span(seconds: float) -> str:
    """Return a time as text: `50 s`, `45 min`, `2 h`, `3 d`."""
    for unit, length, up_to in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172800)):
        if seconds < up_to:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds / 86400:.0f} d"


def worse_finding(first: Finding, second: Finding) -> Finding:
    """Return the worse of two findings: failed, then error, then ok. If both are equal, return the first."""
    order = (FAILED, ERROR, OK)
    return min(first, second, key=lambda finding: order.index(finding.verdict))
