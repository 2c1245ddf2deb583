"""The preview of an experiment: how many trials train how long."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from slurm_plugin.experiment.simulate import preview
from slurm_plugin.records.experiments import Algorithm, Experiment, Metric, Search

SPACE: Mapping[str, Any] = {"x": {"type": "int", "minval": 0, "maxval": 10, "count": 4}, "y": {"z": [1]}}


def experiment(name: str, options: Mapping[str, Any] | None = None, **fields: Any) -> Experiment:
    """Return an experiment with one algorithm."""
    search = Search(Metric("loss"), SPACE, (Algorithm(name, options or {}),), **fields)
    return Experiment("mnist", search, notes=("weight: Slurm has no such thing",))


def test_the_whole_preview() -> None:
    """It is what JSON can hold, under documented names."""
    made = preview(
        experiment("adaptive_asha", {"divisor": 3, "max_rungs": 10}, trials=10, concurrent=5, max_length=900)
    )
    assert json.loads(json.dumps(made)) == {
        "v": 1,
        "name": "mnist",
        "algorithms": ["adaptive_asha"],
        "metric": "loss",
        "smaller_is_better": True,
        "trials": 10,
        "concurrent": 5,
        "unit": "batches",
        "max_length": 900,
        "brackets": [
            {"rungs": [100, 300, 900], "trials": 7, "concurrent": 3},
            {"rungs": [300, 900], "trials": 3, "concurrent": 2},
        ],
        "lengths": [{"length": 100, "trials": 5}, {"length": 300, "trials": 3}, {"length": 900, "trials": 2}],
        "total_length": {"least": 6 * 100 + 2 * 300 + 2 * 900, "most": 9000},
        "grid": None,
        "notes": ["weight: Slurm has no such thing"],
    }


@pytest.mark.parametrize(
    ("name", "fields", "trials", "lengths", "total"),
    [
        ("grid", {"concurrent": 2, "max_length": 100}, 4, [(100, 4)], (400, 400)),
        ("single", {"max_length": 7}, 1, [(7, 1)], (7, 7)),
        ("random", {"trials": 12, "max_length": 5}, 12, [(5, 12)], (60, 60)),
        ("random", {"trials": 12}, 12, [(None, 12)], (None, None)),
        ("adaptive_asha", {"trials": 1, "max_length": 100}, 1, [(100, 1)], (100, 100)),
        # Rungs 25 and 100 in the first bracket, 100 in the other.
        ("adaptive_asha", {"trials": 10, "max_length": 100}, 10, [(25, 6), (100, 4)], (550, 1000)),
    ],
)
def test_lengths(
    name: str, fields: Mapping[str, Any], trials: int, lengths: list[Any], total: tuple[int | None, int | None]
) -> None:
    """Each rung keeps 1/divisor of its trials and at least one; without a length the total is not known."""
    made = preview(experiment(name, **fields))
    assert made["trials"] == trials
    assert [(each["length"], each["trials"]) for each in made["lengths"]] == lengths
    assert (made["total_length"]["least"], made["total_length"]["most"]) == total


def test_the_values_of_a_grid() -> None:
    """They are listed for each hyperparameter."""
    assert preview(experiment("grid"))["grid"] == {"x": [0, 3, 7, 10], "y.z": [[1]]}


def test_promoting_runs_as_stopping() -> None:
    """A note says so if the file asks for the other form."""
    notes = preview(experiment("adaptive_asha", {"stop_once": False}, trials=1, max_length=1))["notes"]
    assert notes[1:] == ["stop_once: false runs as stopping: a trial that is not among the best of its rung ends there"]
