"""The parts of a chart as SVG: axes with their ticks, and one mark for each trial. Pure.

The marks of all trials with the same shade are one path, in which each trial is one subpath: `M` begins it. `data-n`
lists the trials in the same order, for the script of the page. Coordinates are whole numbers: a page of
hundreds of trials stays small.
"""

import html
import math
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from slurm_plugin.views.columns import shown
from slurm_plugin.views.experiment.summary import Dimension
from slurm_plugin.views.markup import Axis

LEFT, RIGHT, TOP, BOTTOM = 120, 25, 30, 66  # margins of a chart
SHADES: Final = 5  # 0: the best fifth of the trials
NO_VALUE: Final = SHADES  # the shade of trials without a value
FENCE: Final = 3.0  # values that are worse by this many interquartile ranges are drawn at the edge of the chart
LONGEST: Final = 1000  # characters of a text beside a chart
DECADES: Final = 2.5  # positive values over more powers of ten have a logarithmic axis


class Mark(NamedTuple):
    """What a chart shows of a trial: one point, or a line through several."""

    trial: int
    points: Sequence[tuple[int, int]]
    shade: int


def dimension_axis(dimension: Dimension, values: Iterable[float], start: int, end: int) -> Axis:
    """Return the axis of a hyperparameter. `values` of trials may lie outside its range."""
    if dimension.choices:
        return Axis(-0.5, len(dimension.choices) - 0.5, start, end, choices=dimension.choices)
    every = [dimension.low, dimension.high, *values]
    low, high = min(every), max(every)
    return Axis(low, high, start, end, log=dimension.log and low > 0)


def value_axis(values: Sequence[float], start: int, end: int, *, smaller_is_better: bool) -> tuple[Axis, int]:
    """Return the axis of the metric, and how many values are beyond it: those far worse than most, and infinite ones.

    `start` is the coordinate of the smallest value.
    """
    known = sorted(each for each in values if math.isfinite(each))
    if not known:
        return Axis(0.0, 1.0, start, end), len(values)
    log = known[0] > 0 and math.log10(known[-1]) - math.log10(known[0]) > DECADES
    scaled = [math.log10(each) for each in known] if log else known
    first, third = scaled[len(scaled) // 4], scaled[(3 * len(scaled)) // 4]
    reach = FENCE * (third / 2 - first / 2) * 2
    kept = [
        each
        for each, place in zip(known, scaled, strict=True)
        if not reach or (place <= third + reach if smaller_is_better else place >= first - reach)
    ]
    low, high = kept[0], kept[-1]
    return Axis(low, high, start, end, log=log), sum(not low <= each <= high for each in values)


def shades(values: Sequence[tuple[int, float | None]], *, smaller_is_better: bool) -> dict[int, int]:
    """Return trial -> shade: 0 for the best fifth. Trials with a value that is not finite get NO_VALUE."""
    sign = 1 if smaller_is_better else -1
    known = sorted((sign * each, trial) for trial, each in values if each is not None and math.isfinite(each))
    found = {trial: place * SHADES // len(known) for place, (_, trial) in enumerate(known)}
    return {trial: found.get(trial, NO_VALUE) for trial, _ in values}


def marks(found: Sequence[Mark]) -> str:
    """Return the marks of trials, the best last: they are drawn over the others."""
    parts = []
    for shade in range(NO_VALUE, -1, -1):
        those = [each for each in found if each.shade == shade and each.points]
        if those:
            names = " ".join(str(each.trial) for each in those)
            parts.append(f'<path class="m q{shade}" data-n="{names}" d="{"".join(map(_subpath, those))}"/>')
    return "".join(parts)


def _subpath(mark: Mark) -> str:
    (x, y), *rest = mark.points
    # A line of length 0 with round ends is drawn as a dot.
    return f"M{x} {y}" + (f"L{' '.join(f'{x} {y}' for x, y in rest)}" if rest else "h0")


def step_line(points: Sequence[tuple[int, int]], end: int) -> str:
    """Return a line that changes only at its points, up to the coordinate `end`."""
    if not points:
        return ""
    steps = "".join(f"H{x}V{y}" for x, y in points[1:])
    return f'<path class="step" d="M{points[0][0]} {points[0][1]}{steps}H{end}"/>'


def label(x: int, y: int, text: str, anchor: str = "middle", *, longest: int = 14, kind: str = "") -> str:
    """Return a text; if it is cut, the whole text is its tooltip. Return "" for an empty text."""
    if not text:
        return ""
    short = shown(text, longest)
    title = f"<title>{html.escape(shown(text))}</title>" if short != shown(text) else ""
    of = f' class="{kind}"' if kind else ""
    return f'<text{of} x="{x}" y="{y}" text-anchor="{anchor}">{html.escape(short)}{title}</text>'


def across(axis: Axis, y: int, top: int, name: str) -> str:
    """Return a horizontal axis at `y`, with lines up to `top`."""
    lines = "".join(f"M{x} {top}V{y}" for x, _ in axis.ticks())
    texts = "".join(label(x, y + 30, text, longest=8) for x, text in axis.ticks())
    middle = (axis.start + axis.end) // 2
    return f'<path class="grid" d="{lines}"/>{texts}{label(middle, y + 58, name, longest=40, kind="name")}'


def upright(axis: Axis, x: int, right: int) -> str:
    """Return a vertical axis at `x`, with lines to `right`."""
    lines = "".join(f"M{x} {y}H{right}" for y, _ in axis.ticks())
    texts = "".join(label(x - 10, y + 8, text, "end", longest=8) for y, text in axis.ticks())
    return f'<path class="grid" d="{lines}"/>{texts}'


def figure(title: str, about: str, body: str, size: tuple[int, int], *, kind: str = "", note: str = "") -> str:
    """Return a chart with its title. `about`: the chart in words, for screen readers; `body`: SVG."""
    lines = "<br>".join(html.escape(shown(each, LONGEST)) for each in note.splitlines())
    more = f"<p>{lines}</p>" if note else ""
    words = html.escape(shown(about, LONGEST))
    return (
        f'<figure class="{kind}"><figcaption>{html.escape(shown(title, LONGEST))}</figcaption>'
        f'<svg viewBox="0 0 {size[0]} {size[1]}" role="img" aria-label="{words}">{body}</svg>'
        f"{more}</figure>"
    )
