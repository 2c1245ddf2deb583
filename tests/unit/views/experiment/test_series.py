"""The metrics of a trial, from lines that its program wrote."""

import json
import math

import pytest

from slurm_plugin.views.experiment import series
from slurm_plugin.views.experiment.series import TRAINING, VALIDATION, Point

FULL = {"kind": "training", "step": 5, "batches": 50, "metrics": {"loss": 0.5, "acc": 1}, "at": 7.5}


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (FULL, {(TRAINING, "loss"): [Point(5, 0.5, 7.5)], (TRAINING, "acc"): [Point(5, 1, 7.5)]}),
        ({"kind": "validation", "batches": 50, "metrics": {"loss": 2}}, {(VALIDATION, "loss"): [Point(50, 2, 0)]}),
        ({"loss": 0.3, "step": 100}, {(VALIDATION, "loss"): [Point(100, 0.3, 0)]}),
        ({"loss": 0.3}, {(VALIDATION, "loss"): [Point(1, 0.3, 0)]}),  # without a length: its place
        ({"kind": "checkpoint", "name": "best", "step": 1}, {}),
        ({"kind": "start", "api": 1}, {}),
        ({"kind": "progress", "step": 1, "metrics": {"loss": 1}}, {}),
        ({"loss": "0.3", "acc": True, "f1": None, "x": [1]}, {}),
        ({"kind": [], "loss": 1}, {}),
        ({"kind": "validation", "metrics": [1], "step": 3}, {}),
        ([1], {}),
        ("loss", {}),
        ({"loss": 1, "step": math.nan, "at": "now"}, {(VALIDATION, "loss"): [Point(1, 1, 0)]}),
    ],
)
def test_lines(line: object, found: object) -> None:
    """Both forms are read; anything else in a line is ignored."""
    assert series.read([json.dumps(line).encode()]) == found


def test_what_is_no_json() -> None:
    """Torn and binary lines are ignored, and the others count."""
    lines = [b'{"loss": 1', b"\xff\x00", b"", b"[" * 100_000, b'{"loss": 1e999}', b'{"loss": ' + b"9" * 400 + b"}"]
    assert series.read(lines) == {(VALIDATION, "loss"): [Point(1, math.inf, 0)]}


def test_units() -> None:
    """The unit of the search says how far the trial is; it may be a reported metric."""
    lines = [b'{"step": 5, "epochs": 2, "metrics": {"loss": 1, "tokens": 70}}']
    for unit, length in (("epochs", 2), ("tokens", 70), ("none", 5)):
        assert series.read(lines, unit)[VALIDATION, "loss"] == [Point(length, 1, 0)]


def test_events() -> None:
    """A metric that was read from the log is only in the worker's events."""
    lines = [b'{"e": "take", "n": 1, "value": 3}', b'{"e": "report", "n": 1, "time": 40, "value": 0.25, "at": 9}']
    assert series.read(lines, metric="loss") == {(VALIDATION, "loss"): [Point(40, 0.25, 9)]}
    assert series.read(lines) == {}


def test_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither many values nor many names fill the memory."""
    monkeypatch.setattr(series, "MOST_POINTS", 10)
    monkeypatch.setattr(series, "MOST_NAMES", 3)
    found = series.read(json.dumps({f"m{line}": 1, "loss": 2}).encode() for line in range(1000))
    assert len(found) == 3
    assert sum(map(len, found.values())) == 10


def test_text() -> None:
    """A table of all metrics, and a plot of the one that counts."""
    lines = [json.dumps({"loss": 1 / step, "acc\x1b[2J": step, "step": step}).encode() for step in range(1, 6)]
    assert series.text(series.read(lines), "loss", "batches") == [
        "METRIC   KIND        VALUES  FIRST  LAST  LOWEST  HIGHEST",
        "loss     validation  5       1      0.2   0.2     1",
        "acc?[2J  validation  5       1      5     1       5",
        "",
        "loss (validation) over batches",
        "  1 |*",
        *["    |"] * 6,
        "    |                *",
        "    |",
        "    |                                *",
        "    |                                               *",
        "0.2 |                                                               *",
        "    +" + "-" * 64,
        "     1                                                              5",
    ]


def test_forms() -> None:
    """--json has null for what is not finite; --csv has each value in full."""
    known = series.read([b'{"loss": 0.1, "step": 1, "at": 5}', b'{"loss": NaN, "step": 2}'])
    points = [[1.0, 0.1, 5.0], [2.0, None, None]]
    assert series.form(3, known) == {
        "v": 1, "trial": 3, "metrics": [{"name": "loss", "kind": "validation", "points": points}],
    }  # fmt: skip
    assert series.rows(known)[1:] == [
        ("validation", "loss", "1", "0.1", "5.000"),
        ("validation", "loss", "2", "nan", ""),
    ]


def test_plots_of_anything() -> None:
    """Extreme and equal values have a plot, too."""
    assert series.plot([]) == series.plot([Point(1, 1, 0)]) == []
    for values in ((1e-9, 1e9), (-1e308, 1e308), (3.0, 3.0), (math.nan, 1.0, 2.0)):
        lines = series.plot([Point(place, each, 0) for place, each in enumerate(values)])
        assert len(lines) == series.HEIGHT + 2
        assert sum(line.count("*") for line in lines) in (1, 2)
