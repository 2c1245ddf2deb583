"""What a trial has reported: its metrics over its training, from the lines that its program and its worker wrote. Pure.

The program owns metrics.jsonl, so a line may hold anything.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from slurm_plugin.errors import printable
from slurm_plugin.views.columns import columns, finite, shown
from slurm_plugin.views.markup import Axis

VALIDATION, TRAINING = "validation", "training"
# Keys of a line that say how far the trial is, the first one that is there counts.
LENGTHS: Final = ("step", "batches", "epochs", "records", "time")
OTHER_KEYS: Final = frozenset((*LENGTHS, "kind", "e", "n", "at", "name", "metrics", "api"))
MOST_NAMES: Final = 1000  # of metrics; further ones are left out
MOST_POINTS: Final = 200_000  # of all metrics; further ones are left out
WIDTH, HEIGHT = 64, 12  # of a plot, in characters


class Point(NamedTuple):
    """A value of a metric."""

    length: float  # how far the trial had trained
    value: float  # may be infinite or NaN
    at: float  # Unix time; 0: not known


Series = Mapping[tuple[str, str], Sequence[Point]]  # kind and name of a metric -> its values


def read(lines: Iterable[bytes], unit: str = "", *, metric: str = "") -> Series:
    """Return the metrics in these lines of metrics.jsonl. Ignore what is not understood.

    `unit`: of the lengths of the search. `metric`: also read lines of events.jsonl, as values of this metric.
    """
    found: dict[tuple[str, str], list[Point]] = {}
    count = 0
    for raw in lines:
        try:
            line = json.loads(raw)
        except (ValueError, RecursionError):
            continue
        if not isinstance(line, dict):
            continue
        for name, number in _metrics(line, metric):
            kind = line.get("kind", VALIDATION)
            key = (TRAINING if kind == TRAINING else VALIDATION, name)
            if count >= MOST_POINTS or (key not in found and len(found) >= MOST_NAMES):
                continue
            count += 1
            known = found.setdefault(key, [])
            named = line.get("metrics")
            other = named.get(unit) if isinstance(named, dict) else None
            lengths = (finite(each) for each in (line.get(unit), other, *map(line.get, LENGTHS)))
            length = next((each for each in lengths if each is not None), float(len(known) + 1))
            known.append(Point(length, number, finite(line.get("at")) or 0.0))
    return found


def _metrics(line: Mapping[str, Any], metric: str) -> list[tuple[str, float]]:
    """Return the names and values of a line."""
    if "e" in line:
        pairs: Iterable[tuple[Any, Any]] = [(metric, line.get("value"))] if metric and line["e"] == "report" else []
    elif line.get("kind", VALIDATION) not in (VALIDATION, TRAINING):
        pairs = []
    elif isinstance(metrics := line.get("metrics"), dict):
        pairs = metrics.items()
    else:
        pairs = ((key, each) for key, each in line.items() if key not in OTHER_KEYS)
    return [(str(key), float(each)) for key, each in pairs if type(each) is float or finite(each) is not None]


def form(trial: int, series: Series) -> dict[str, Any]:
    """Return the metrics for --json; values that are not finite are null."""
    rows = [
        {"name": name, "kind": kind, "points": [[each.length, finite(each.value), each.at or None] for each in points]}
        for (kind, name), points in series.items()
    ]
    return {"v": 1, "trial": trial, "metrics": rows}


def rows(series: Series) -> list[tuple[str, ...]]:
    """Return the metrics as rows of a CSV file, with their head."""
    head = ("kind", "name", "length", "value", "at")
    return [
        head,
        *(
            (kind, printable(name), f"{each.length:.12g}", repr(each.value), f"{each.at:.3f}" if each.at else "")
            for (kind, name), points in series.items()
            for each in points
        ),
    ]


def text(series: Series, plotted: str, unit: str) -> list[str]:
    """Return the metrics as a table, and the values of one of them as a plot."""
    table: list[tuple[str, ...]] = [("METRIC", "KIND", "VALUES", "FIRST", "LAST", "LOWEST", "HIGHEST")]
    for (kind, name), points in series.items():
        values = [each.value for each in points if math.isfinite(each.value)] or [math.nan]
        numbers = (points[0].value, points[-1].value, min(values), max(values))
        table.append((shown(name), kind, str(len(points)), *(shown(float(each)) for each in numbers)))
    for kind in (VALIDATION, TRAINING):
        if points := series.get((kind, plotted), ()):
            return [*columns(table), "", f"{printable(plotted)} ({kind}) over {printable(unit)}", *plot(points)]
    return columns(table)


def plot(points: Sequence[Point]) -> list[str]:
    """Return a plot of characters; nothing without two finite values. The scale is logarithmic over four decades."""
    known = [each for each in points if math.isfinite(each.value)]
    if len(known) < 2:
        return []
    low, high = min(each.value for each in known), max(each.value for each in known)
    left, right = min(each.length for each in known), max(each.length for each in known)
    log = low > 0 and high / low > 1e4
    x, y = Axis(left, right, 0, WIDTH - 1), Axis(low, high, HEIGHT - 1, 0, log)
    cells = [[" "] * WIDTH for _ in range(HEIGHT)]
    for each in known:
        cells[y.at(each.value)][x.at(each.length)] = "*"
    labels = {0: shown(high), HEIGHT - 1: shown(low)}
    margin = max(map(len, labels.values()))
    lines = [f"{labels.get(row, ''):>{margin}} |{''.join(line).rstrip()}" for row, line in enumerate(cells)]
    ends = shown(left), shown(right)
    return [
        *lines,
        f"{'':{margin}} +{'-' * WIDTH}",
        f"{'':{margin}}  {ends[0]}{ends[1]:>{WIDTH - len(ends[0])}}" + (" (logarithmic)" if log else ""),
    ]
