"""How a job used its nodes and how fast it was, as curves over its time. Pure."""

import html
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from slurm_plugin.records.history import duration
from slurm_plugin.records.usage import LOW
from slurm_plugin.views.columns import finite
from slurm_plugin.views.markup import Axis, table
from slurm_plugin.views.report import plane
from slurm_plugin.views.report.plane import Plane
from slurm_plugin.views.report.story import Story

BINS: Final = 300  # bins of time: a curve has at most this many points
HIGH: Final = 130  # pixels of a chart
TOP: Final = 8
HEADROOM: Final = 1.08  # of the axis above the largest value
SCALE: Final = 1000  # units of the curves' own frame, which is stretched over the plane
BYTES: Final = (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
Value = tuple[float, int, float]  # time, attempt, value


class Curve(NamedTuple):
    """One quantity over the time."""

    key: str
    title: str
    unit: str
    values: Sequence[Value]
    high: float | None = None  # the upper end of the axis, if it is fixed
    line: float | None = None  # a value that is marked
    note: str = ""
    band: bool = True  # with the range of all nodes
    zero: bool = True  # the axis begins at 0

    @property
    def form(self) -> str:
        """Return the mean, the least and the largest value in words."""
        numbers = [value for _, _, value in self.values]
        mean = sum(numbers) / len(numbers)
        return f"mean {mean:.4g} {self.unit}, from {min(numbers):.4g} to {max(numbers):.4g} {self.unit}".replace(
            " %", "%"
        )


def amount(value: float) -> str:
    """Return a number with three digits, or as a whole number."""
    return f"{value:,.0f}" if 100 <= abs(value) < 1e15 else f"{value:.3g}"


def curves(story: Story) -> list[Curve]:
    """Return the curves that have values."""
    samples, points = story.facts.samples, story.facts.points
    cards = [(each.t, each.attempt, card) for each in samples for card in each.accelerators]

    def of(values: Iterable[tuple[float, int, float | None]], factor: float = 1.0) -> list[Value]:
        scaled = ((t, attempt, finite(value and value * factor)) for t, attempt, value in values)
        return [(t, attempt, value) for t, attempt, value in scaled if value is not None]

    steps = [(each.t, each.attempt, float(each.step)) for each in points]
    memory = of((each.t, each.attempt, each.memory) for each in samples)
    reads, writes = (of((each.t, each.attempt, getattr(each, name)) for each in samples) for name in ("read", "write"))
    found = [
        Curve(
            "used", "Accelerators in use", "%", of(((t, n, card.used) for t, n, card in cards), 100), 100.0, LOW * 100,
            "The line is the mean of all accelerators, the band is from the least to the most used one. Dashed: 50 %, "
            "below which slurm_plugin warns.",
        ),
        Curve("step_s", "Time of a step", "s", of((each.t, each.attempt, each.step_s) for each in points), band=False),
        Curve("step", "Steps", "steps", steps, band=False, zero=False,
              note="Where the curve falls back, the program went on from a checkpoint."),
        _bytes("card_memory", "Memory of an accelerator", of((t, n, card.memory) for t, n, card in cards)),
        Curve("watts", "Power of an accelerator", "W", of((t, n, card.watts) for t, n, card in cards)),
        Curve("cpu", "CPUs in use", "%", of(((each.t, each.attempt, each.cpu) for each in samples), 100), 100.0),
        _bytes("memory", "Memory of the job on a node", memory),
        _bytes("read", "Read by a node", reads, "/s"),
        _bytes("write", "Written by a node", writes, "/s"),
    ]  # fmt: skip
    return [each for each in found if each.values]


def _bytes(key: str, title: str, values: Sequence[Value], per: str = "") -> Curve:
    """Return a curve in the unit that fits its largest value."""
    most = max((value for _, _, value in values), default=0.0)
    unit, size = next((each for each in BYTES if most >= each[1]), ("B", 1))
    return Curve(key, title, f"{unit}{per}", [(t, attempt, value / size) for t, attempt, value in values])


def charts(story: Story, on: Plane) -> list[str]:
    """Return a chart for each curve, all over the same time as the timeline."""
    times = [each.start for each in story.attempts[1:]]
    return [_chart(each, on, times) for each in curves(story)]


def _chart(curve: Curve, on: Plane, restarts: Sequence[float]) -> str:
    inside = [each for each in curve.values if on.begin <= each[0] <= on.end] or list(curve.values)
    numbers = [value for _, _, value in inside]
    low = 0.0 if curve.zero else min(numbers)
    high = max(curve.high or 0.0, *numbers) if curve.high else max(numbers)
    y = Axis(low, high if curve.high else low + (high - low or 1.0) * HEADROOM, TOP + HIGH, TOP)
    bins = _binned(inside, on)
    parts = [_area(bins, y)] if curve.band else []
    parts.append(_line(bins, y))
    frame = (
        f'<svg class="frame" viewBox="0 0 {SCALE} {TOP + HIGH}" width="100%" height="{TOP + HIGH}" '
        f'preserveAspectRatio="none">{"".join(parts)}</svg>'
    )
    ticks = y.ticks(4)
    grid = "".join(f'<line class="grid" x1="0" x2="100%" y1="{at}" y2="{at}"/>' for at, _ in ticks)
    marked = ""
    if curve.line is not None:
        at = y.at(curve.line)
        marked = f'<line class="limit" x1="0" x2="100%" y1="{at}" y2="{at}"/>'
    body = grid + plane.across(on, TOP, TOP + HIGH) + frame + marked + plane.restarts(on, restarts, TOP, TOP + HIGH)
    beside = "".join(plane.side(at + 5, text) for at, text in ticks)
    title = curve.title if curve.unit == curve.title.lower() else f"{curve.title}, {curve.unit}"
    return plane.figure(curve.key, title, f"{title}: {curve.form}.", (beside, body), TOP + HIGH + 24, note=curve.note)


class Bin(NamedTuple):
    """The values of a short time."""

    x: int
    attempt: int
    mean: float
    least: float
    most: float


def _binned(values: Sequence[Value], on: Plane) -> list[Bin]:
    """Return the values in bins of time, by attempt."""
    found: dict[tuple[int, int], list[float]] = {}
    for t, attempt, value in values:
        found.setdefault((round(on.x(t) * BINS / 100), attempt), []).append(value)
    return [
        Bin(round(place * SCALE / BINS), attempt, sum(those) / len(those), min(those), max(those))
        for (place, attempt), those in sorted(found.items())
    ]


def _line(bins: Sequence[Bin], y: Axis) -> str:
    """Return the curve of the means, one line for each attempt. A single value is a dot."""
    lines: list[str] = []
    dots: list[str] = []
    for attempt in dict.fromkeys(each.attempt for each in bins):
        places = [f"{each.x} {y.at(each.mean)}" for each in bins if each.attempt == attempt]
        (lines if places[1:] else dots).append(f"M{'L'.join(places)}" if places[1:] else f"M{places[0]}h0")
    return "".join(
        f'<path class="{kind}" d="{"".join(d)}"/>' for kind, d in (("curve", lines), ("curve dot", dots)) if d
    )


def _area(bins: Sequence[Bin], y: Axis) -> str:
    """Return the range from the least to the largest value."""
    found = []
    for attempt in dict.fromkeys(each.attempt for each in bins):
        own = [each for each in bins if each.attempt == attempt]
        upper = [f"{each.x} {y.at(each.most)}" for each in own]
        lower = [f"{each.x} {y.at(each.least)}" for each in reversed(own)]
        found.append(f"M{'L'.join([*upper, *lower])}Z")
    return f'<path class="range" d="{"".join(found)}"/>'


def numbers(story: Story) -> str:
    """Return the curves as a table: the mean of each attempt, with its unit."""
    every = curves(story)
    if not every:
        return ""
    heads = [("Attempt", "n"), ("Took", "n"), *((html.escape(each.title), "n") for each in every)]
    rows = []
    for attempt in story.attempts:
        cells = "".join(f'<td class="n">{_mean(each, attempt.number)}' for each in every)
        took = duration(attempt.end - attempt.start)
        rows.append(f'<tr><th scope="row" class="n">{attempt.number}<td class="n">{took}{cells}')
    return table("Use and speed of each attempt", heads, rows, kind="")


def _mean(curve: Curve, attempt: int) -> str:
    """Return the mean of an attempt; of the steps, the last one."""
    if not (values := [value for _, number, value in curve.values if number == attempt]):
        return ""
    found = max(values) if curve.key == "step" else sum(values) / len(values)
    return html.escape(f"{amount(found)} {curve.unit}")
