"""Judge whether a program is slow: its share of hardware time, and its steps against its own best. Pure.

A slow step says that the job is slow, not which node causes it. So nodes are named only by facts about them.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from slurm_plugin.logs.steps import Step
from slurm_plugin.records.history import duration
from slurm_plugin.records.usage import Accelerator, Sample

RECENT: Final = 20  # iterations, or steps, whose median is judged
BEST_OF: Final = 100  # steps whose median may be the best
FIRST: Final = 20  # steps of an attempt that are not judged: caches, compilation
FACTOR: Final = 1.2
SLOW_S: Final = 300.0
BLOCK_S: Final = 100.0  # the shortest time from which a step's time is computed: the log is read every 10 s
LOW: Final = 0.8  # of the job's median: fewer watts, or a lower clock, are worth a word
AT_LEAST: Final = 3  # accelerators whose median is compared
MOST_FACTS: Final = 4
# Bits of NVML's nvmlClocksEventReasons that slow a GPU down because of heat or power supply, not of its load.
THROTTLES: Final[Mapping[int, str]] = {
    0x08: "a hardware slowdown",
    0x20: "heat",
    0x40: "heat (hardware)",
    0x80: "a power brake",
}


def median(values: Collection[float]) -> float:
    """Return the median. Load `statistics` with the first one: it would take 8 ms of each program's start."""
    import statistics  # noqa: PLC0415

    return statistics.median(values)


class Ratios:
    """The share of hardware time in the last iterations, against the threshold of `performance`."""

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold
        self._last: deque[float] = deque(maxlen=RECENT)

    def added(self, ratios: Iterable[float]) -> str:
        """Take the next iterations. Return what is wrong, or nothing."""
        self._last.extend(ratios)
        if len(self._last) < RECENT or (now := median(self._last)) <= self._threshold:
            return ""
        return f"hardware time is {now:.3g} of e2e time in {RECENT} iterations, above {self._threshold:g} (performance)"


class StepTimes:
    """The times of an attempt's steps. Checkpoint steps and the first ones are left out."""

    def __init__(self) -> None:
        self._last: deque[float] = deque(maxlen=BEST_OF)
        self._best = float("inf")
        self._seen = 0
        self._since: float | None = None
        self._step: int | None = None
        self._from: tuple[int, float] | None = None  # step and time from which a step's time is computed

    def added(self, steps: Sequence[Step], now: float) -> str:
        """Take the steps of one look at the log. Return what is wrong, or nothing."""
        for each in steps:
            count = 1 if self._step is None or each.step is None else max(1, each.step - self._step)
            self._step = each.step
            if each.step_s is not None:
                self._take(each.step_s, count, leave_out=each.saves)
        if steps and all(each.step_s is None for each in steps):
            self._take_block(steps[-1].step or 0, now)
        return self._judged(now) if steps and len(self._last) >= RECENT else ""

    def _take_block(self, step: int, now: float) -> None:
        """Compute the time of steps that do not tell it, from many of them: a look sees the log seconds late."""
        start, began = self._from or (step, now)
        if step < start or not self._from:
            self._from = (step, now)
        elif step - start >= RECENT and now - began >= BLOCK_S:
            self._from = (step, now)
            self._take((now - began) / (step - start), step - start, leave_out=False)

    def _take(self, step_s: float, count: int, *, leave_out: bool) -> None:
        """Take the time of `count` steps."""
        early = self._seen < FIRST
        self._seen += count
        if not (early or leave_out):
            self._last.extend([step_s] * min(count, BEST_OF))
            if len(self._last) == BEST_OF:
                self._best = min(self._best, median(self._last))

    def _judged(self, now: float) -> str:
        recent = median([*self._last][-RECENT:])
        if not self._best or recent <= FACTOR * self._best:  # 0: the log rounds the times
            self._since = None
            return ""
        self._since = now if self._since is None else self._since
        if now - self._since < SLOW_S:
            return ""
        best = f"{recent / self._best:.2g} times as long as at the best of this attempt ({self._best:.3g} s)"
        return f"a step takes {recent:.3g} s for {duration(now - self._since)}, {best}"


@dataclass(slots=True)
class Facts:
    """What the samples of a job's nodes tell in one attempt: the newest of each node, and the first link errors."""

    newest: dict[str, Sample]
    links: dict[str, float]

    def take(self, sample: Sample) -> None:
        """Take a sample."""
        self.newest[sample.node] = sample
        if sample.links is not None:
            self.links.setdefault(sample.node, sample.links)

    def suspects(self) -> list[str]:
        """Return what is unusual about nodes, one sentence each; empty if nothing is."""
        cards = [(sample.node, card) for sample in self.newest.values() for card in sample.accelerators]
        found = [each for node, card in cards if (each := _throttled(node, card))]
        found += _below(cards, "clock", "runs at {:.0f} MHz")
        found += _below(cards, "watts", "draws {:.0f} W")
        for node, sample in self.newest.items():
            if sample.links is not None and (more := sample.links - self.links.get(node, sample.links)) > 0:
                found.append(f"{node}: {more:.0f} more link error{'' if more == 1 else 's'} in this attempt")
        return found[:MOST_FACTS] + ([f"and {len(found) - MOST_FACTS} more"] if len(found) > MOST_FACTS else [])


def _throttled(node: str, card: Accelerator) -> str:
    bits = int(card.throttle or 0)
    why = [words for bit, words in THROTTLES.items() if bits & bit]
    return f"{node}: accelerator {card.index} is throttled: {', '.join(why)}" if why else ""


def _below(cards: Sequence[tuple[str, Accelerator]], name: str, text: str) -> list[str]:
    """Return the accelerators whose value is well below the median of all."""
    values = [(node, card.index, float(value)) for node, card in cards if (value := getattr(card, name)) is not None]
    if len(values) < AT_LEAST:
        return []
    middle = median([value for *_, value in values])
    return [
        f"{node}: accelerator {index} {text.format(value)}, the median of the job is {middle:.0f}"
        for node, index, value in values
        if value < LOW * middle
    ]
