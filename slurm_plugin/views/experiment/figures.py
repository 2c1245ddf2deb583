"""The charts of the page of an experiment. Pure: from its trials to SVG."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from slurm_plugin.records.experiments import (
    CANCELLED,
    COMPLETED,
    FAILED,
    INVALID,
    RUNNING,
    STOPPED,
    WAITING,
    Experiment,
    Trial,
)
from slurm_plugin.records.history import duration
from slurm_plugin.views.columns import finite, shown
from slurm_plugin.views.experiment import charts
from slurm_plugin.views.experiment.charts import BOTTOM, LEFT, RIGHT, TOP, Mark
from slurm_plugin.views.experiment.summary import MOST_LENGTH, Dimension, duration_s, moment, searched, trained
from slurm_plugin.views.experiment.text import amount
from slurm_plugin.views.markup import Axis

WIDE, HIGH = 1000, 520  # of a large chart
NARROW, LOW = 500, 400  # of a slice
MOST_AXES: Final = 12  # of the parallel coordinates, and slices
MOST_POINTS: Final = 10_000  # of all learning curves
ORDER: Final = (COMPLETED, STOPPED, RUNNING, WAITING, FAILED, INVALID, CANCELLED)


class Plotted(NamedTuple):
    """What all charts share."""

    experiment: Experiment
    trials: Sequence[Trial]
    values: Mapping[int, float | None]  # of trials that have reported
    shades: Mapping[int, int]
    now: float

    @property
    def metric(self) -> str:
        """Return the name of the metric."""
        return self.experiment.search.metric.name

    @property
    def smaller(self) -> bool:
        """Return whether a smaller value is better."""
        return self.experiment.search.metric.smaller_is_better

    def of_values(self, start: int, end: int) -> tuple[Axis, str]:
        """Return the axis of the trials' values, and a note on those beyond it."""
        known = [each for each in self.values.values() if each is not None]
        axis, beyond = charts.value_axis(known, start, end, smaller_is_better=self.smaller)
        are = "value is" if beyond == 1 else "values are"
        return axis, f"{beyond} {are} beyond the axis and drawn at its edge." if beyond else ""


def plotted(experiment: Experiment, trials: Sequence[Trial], now: float) -> Plotted:
    """Return what all charts share."""
    values = [(each.number, each.value(experiment.search.metric)) for each in trials]
    shades = charts.shades(values, smaller_is_better=experiment.search.metric.smaller_is_better)
    return Plotted(experiment, trials, dict(values), shades, now)


def history(found: Plotted) -> str:
    """Return the best value so far over the trials, and over the time."""
    trials = [each for each in found.trials if finite(found.values[each.number]) is not None]
    begin = min((at for each in found.trials if (at := moment(each.began))), default=0.0)
    ends = {
        each.number: moment(each.ended) or max((moment(one.at) for one in each.reports), default=0.0) for each in trials
    }
    unit_s, unit = _unit_of_time(max([0.0, *(each - begin for each in ends.values())]))
    over_time = [(max(ends[each.number] - begin, 0.0) / unit_s, each) for each in trials if ends[each.number]]
    over_trials = [(float(each.number), each) for each in trials]
    words = _best_in_words(found, trials)
    return _best_so_far(found, "Best so far, by trial", "trial", over_trials, words) + _best_so_far(
        found, "Best so far, by time", f"time since the beginning ({unit})", over_time, words
    )


def _unit_of_time(longest_s: float) -> tuple[float, str]:
    units = ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"))
    return next((each for each in units if longest_s >= 3 * each[0]), units[-1])


def _best_in_words(found: Plotted, trials: Sequence[Trial]) -> str:
    if not trials:
        return "No trial has a value yet."
    sign = 1 if found.smaller else -1
    best = min(trials, key=lambda each: sign * (found.values[each.number] or 0.0))
    return f"The best {found.metric} is {shown(found.values[best.number])}, of trial {best.number}."


def _best_so_far(found: Plotted, title: str, name: str, places: Sequence[tuple[float, Trial]], words: str) -> str:
    places = sorted(places, key=lambda each: (each[0], each[1].number))
    x = Axis(0.0, max([each for each, _ in places], default=1.0), LEFT, WIDE - RIGHT)
    y, note = found.of_values(HIGH - BOTTOM, TOP)
    line: list[tuple[int, int]] = []
    record = math.inf
    for place, trial in places:
        value = found.values[trial.number] or 0.0
        if (cost := value if found.smaller else -value) < record:
            record = cost
            line.append((x.at(place), y.at(value)))
    marks = [
        Mark(trial.number, [(x.at(place), y.at(found.values[trial.number] or 0.0))], found.shades[trial.number])
        for place, trial in places
    ]
    body = (
        charts.upright(y, LEFT, WIDE - RIGHT)
        + charts.across(x, HIGH - BOTTOM, TOP, name)
        + f'<g class="dots">{charts.marks(marks)}</g>'
        + charts.step_line(line, WIDE - RIGHT)
    )
    about = f"{title}: {found.metric} of each trial, and the best so far as a line. {words}"
    return charts.figure(title, about, body, (WIDE, HIGH), note=note)


def parallel(found: Plotted, dimensions: Sequence[Dimension]) -> str:
    """Return parallel coordinates: an axis for each hyperparameter and one for the metric, a line for each trial."""
    bottom, top = HIGH - 25, 80
    y, note = found.of_values(bottom, top)
    names = [*(each.name for each in dimensions), found.metric]
    left, right = 70, WIDE - 90
    places = [round(left + (right - left) * place / max(len(names) - 1, 1)) for place in range(len(names))]
    numbers = {each.number: [dimension.number(each.values) for dimension in dimensions] for each in found.trials}
    axes = [
        charts.dimension_axis(each, (row[place] for row in numbers.values() if row[place] is not None), bottom, top)  # type: ignore[misc]
        for place, each in enumerate(dimensions)
    ] + [y]
    marks = []
    for trial in found.trials:
        row = [*numbers[trial.number], found.values[trial.number]]
        points = [(x, axis.at(each)) for x, axis, each in zip(places, axes, row, strict=True) if each is not None]
        marks.append(Mark(trial.number, points if len(points) > 1 else [], found.shades[trial.number]))
    longest = max(4, 150 // len(names))
    parts = [f'<g class="lines">{charts.marks(marks)}</g>']
    for place, (x, axis, name) in enumerate(zip(places, axes, names, strict=True)):
        parts.append(f'<path class="axis" d="M{x} {top}V{bottom}"/>')
        anchor, at = ("start", 10) if not place else ("end", WIDE - 10) if place == len(names) - 1 else ("middle", x)
        parts.append(charts.label(at, 30 if place % 2 else 58, name, anchor, longest=2 * longest, kind="name"))
        parts += [
            charts.label(x + 8, y_at + 7, text, "start", longest=min(longest, 9), kind="halo")
            for y_at, text in axis.ticks(4)
        ]
    about = f"Parallel coordinates: one line for each trial through {', '.join(names)}. All values are in the table."
    return charts.figure(
        "Hyperparameters and value of each trial", about, "".join(parts), (WIDE, HIGH), kind="wide", note=note
    )


def slices(found: Plotted, dimensions: Sequence[Dimension]) -> Iterable[str]:
    """Yield a chart for each hyperparameter: the values of the trials over it."""
    y, _ = found.of_values(LOW - BOTTOM, TOP)
    for dimension in dimensions:
        numbers = [(each.number, dimension.number(each.values), found.values[each.number]) for each in found.trials]
        known = [(trial, number, value) for trial, number, value in numbers if number is not None and value is not None]
        x = charts.dimension_axis(dimension, (number for _, number, _ in known), LEFT, NARROW - RIGHT)
        marks = [Mark(trial, [(x.at(number), y.at(value))], found.shades[trial]) for trial, number, value in known]
        body = (
            charts.upright(y, LEFT, NARROW - RIGHT)
            + charts.across(x, LOW - BOTTOM, TOP, "logarithmic" if x.log else "")
            + f'<g class="dots">{charts.marks(marks)}</g>'
        )
        about = f"{found.metric} of each trial over {dimension.name}."
        yield charts.figure(shown(dimension.name, 40), about, body, (NARROW, LOW), kind="slice")


def curves(found: Plotted, rungs: Sequence[float]) -> str:
    """Return the learning curves of the trials. `rungs`: lengths at which trials may be stopped."""
    drawn = [each for each in found.trials if each.reports]
    reports = [one for each in drawn for one in each.reports]
    lengths = [one.time for one in reports if 0 <= one.time <= MOST_LENGTH]
    x = Axis(0.0, max([*lengths, *rungs], default=1.0), LEFT, WIDE - RIGHT)
    y, beyond = charts.value_axis([one.value for one in reports], HIGH - BOTTOM, TOP, smaller_is_better=found.smaller)
    most = max(4, MOST_POINTS // max(len(drawn), 1))
    marks = [
        Mark(
            each.number,
            _thinned([(x.at(one.time), y.at(one.value)) for one in each.reports], most),
            found.shades[each.number],
        )
        for each in drawn
    ]
    places = [(x.at(each), amount(each)) for each in rungs]
    lines = "".join(f"M{place} {TOP}V{HIGH - BOTTOM}" for place, _ in places)
    body = (
        charts.upright(y, LEFT, WIDE - RIGHT)
        + charts.across(x, HIGH - BOTTOM, TOP, found.experiment.search.unit)
        + f'<g class="lines dots1">{charts.marks(marks)}</g>'
        + (f'<path class="rung" d="{lines}"/>' if lines else "")
    )
    at = ", ".join(text for _, text in places)
    stops = f"Trials may be stopped at the rungs {at} (dashed)." if places else ""
    edge = f" {beyond} values are beyond the axis and drawn at its edge." if beyond else ""
    about = f"Learning curves: {found.metric} of each trial over its training. {stops}"
    return charts.figure("Learning curves", about, body, (WIDE, HIGH), kind="wide", note=f"{stops}{edge}".strip())


def _thinned(points: Sequence[tuple[int, int]], most: int) -> list[tuple[int, int]]:
    """Return at most that many points, the first and the last among them."""
    found = [each for place, each in enumerate(points) if not place or each != points[place - 1]]
    if len(found) <= most:
        return found
    return [found[round(place * (len(found) - 1) / (most - 1))] for place in range(most)]


def budget(found: Plotted) -> str:
    """Return how the trials, their time and their lengths divide by the state of the trials."""
    measures = {
        "trials": lambda _: 1.0,
        "time": lambda each: duration_s(each, found.now),
        shown(found.experiment.search.unit, 12): trained,
    }
    parts, said = [], []
    for row, (name, of) in enumerate(measures.items()):
        sums = {state: sum(of(each) for each in found.trials if each.state == state) for state in ORDER}
        total = sum(sums.values())
        if not total:
            continue
        x, y = float(LEFT + 40), 20 + 70 * row
        parts.append(charts.label(LEFT + 25, y + 34, name, "end", kind="name"))
        for state, part in sums.items():
            width = part / total * (WIDE - RIGHT - LEFT - 40)
            if part:
                parts.append(f'<rect class="s-{state}" x="{x:.0f}" y="{y}" width="{max(width, 2):.0f}" height="50"/>')
                if width > 80:
                    parts.append(
                        charts.label(round(x + width / 2), y + 33, f"{part / total:.0%}", kind=f"on s-{state}")
                    )
            x += width
        shares = ", ".join(f"{state} {_measured(name, part)}" for state, part in sums.items() if part)
        said.append(f"{name}: {shares}")
    size = (WIDE, 20 + 70 * len(measures))
    return charts.figure(
        "How the budget was spent", ". ".join(said), "".join(parts), size, kind="budget", note="\n".join(said)
    )


def _measured(name: str, number: float) -> str:
    return duration(number) if name == "time" else amount(number)


def axes(experiment: Experiment) -> tuple[Sequence[Dimension], str]:
    """Return the hyperparameters that the charts show, and a note on those that they do not."""
    found = searched(experiment.search.space)
    rest = [each.name for each in found[MOST_AXES:]]
    return found[:MOST_AXES], f"The charts leave out: {', '.join(rest)}." if rest else ""
