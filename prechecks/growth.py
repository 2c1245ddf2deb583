"""How much counters grew lately: they count since boot, so each look is compared with those before it.

A counter here is named by where it is and what the kernel calls it, `mlx5_0/1: link_downed`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import pairwise

from prechecks import remembered
from prechecks.verdict import ERROR, FAILED, OK, Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from prechecks.remembered import Sample

    Growth = Mapping[str, tuple[int, float]]  # of each counter: its increase, in how many seconds

STEPS = 12  # samples in a window; more of them would make it slide in smaller steps


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
    """None of these grew by more than its limit in a window; root's look is remembered for the next ones.

    `remember`: not one by hand, whose settings may be others: a shorter window would forget what a longer one needs.
    `limits` and `ends`, the largest values, are by the kernel's names. Raises OSError as prechecks.remembered does.
    """
    known = {name: value for name, value in counters.items() if value is not None}
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    earlier = kept(remembered.recall(state, item, now), now, window_s)
    samples = kept([*earlier, (now, known)], now, window_s)
    if remember and samples[-1][0] == now:
        remembered.keep(state, item, samples)
    grown = growth([*earlier, (now, known)])
    return worse(judge(grown, limits, window_s), unknown(counters, ends or {}))


def kept(samples: Sequence[Sample], now: float, window_s: float) -> list[Sample]:
    """Of these samples, oldest first, those that a window ending `now` needs.

    Its own, no two within a STEPS-th of it, and the last one before it: a quiet node has no other to compare with.
    """
    needed: list[Sample] = []
    for sample in samples:
        if sample[0] <= now - window_s:
            needed = [sample]
        elif not needed or sample[0] - needed[-1][0] >= window_s / STEPS:
            needed.append(sample)
    return needed


def growth(samples: Sequence[Sample]) -> Growth:
    """The increase of each counter of the last sample, and the seconds since the first sample that has it, if any has.

    One that went backwards began again (a reset, a driver's restart, 32 bits that ran over): what it shows then is the
    least that it grew by.
    """
    found: dict[str, tuple[int, float]] = {}
    for name in samples[-1][1]:
        seen = [(at, counters[name]) for at, counters in samples if name in counters]
        steps = [after - before if after >= before else after for (_, before), (_, after) in pairwise(seen)]
        if steps:
            found[name] = (sum(steps), seen[-1][0] - seen[0][0])
    return found


def judge(grown: Growth, limits: Mapping[str, int], window_s: float) -> Finding:
    """A counter may grow by its limit in a window, and in a longer time by as much more."""
    over = []
    for name, (increase, seconds) in grown.items():
        limit = limits[kernels(name)]
        if increase > limit * max(1.0, seconds / window_s):
            over.append(f"{name} +{increase} in {span(seconds)} > {limit} in {span(window_s)}")
    return Finding(FAILED if over else OK, ", ".join(over))


def unknown(counters: Mapping[str, int | None], ends: Mapping[str, int]) -> Finding:
    """A counter without a value, or at its end, where it stays whatever happens, says nothing."""
    missing = [name for name, value in counters.items() if value is None]
    ended = [name for name, value in counters.items() if value is not None and value == ends.get(kernels(name))]
    if missing:
        return Finding(ERROR, f"cannot be read: {', '.join(missing)}")
    if ended:
        return Finding(ERROR, f"at the end of its range, reset it with perfquery -R: {', '.join(ended)}")
    return Finding(OK, "")


def kernels(name: str) -> str:
    """What the kernel calls a counter."""
    return name.rpartition(" ")[2]


def span(seconds: float) -> str:
    """A time as people say it: `50 s`, `45 min`, `2 h`, `3 d`."""
    for unit, length, up_to in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172800)):
        if seconds < up_to:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds / 86400:.0f} d"


def worse(first: Finding, second: Finding) -> Finding:
    """Of two findings the one that says more: failed before unknown before fine; the first of two alike."""
    order = (FAILED, ERROR, OK)
    return min(first, second, key=lambda finding: order.index(finding.verdict))
