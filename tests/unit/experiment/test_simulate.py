"""The simulator, by which cases of Determined's own tests are compared: the lengths that each trial trains to."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.errors import UsageError
from slurm_plugin.experiment import simulate
from slurm_plugin.experiment.simulate import read_config
from tests.refusals import refusal_of

NAMES = "single, random, grid, adaptive_asha, async_halving"
ONE, TWO, FULL = [1000], [1000, 3000], [1000, 3000, 9000]
UP = [number / 100 for number in range(1, 13)]
ROUNDS = [0.01, 0.02, 0.03, 0.04] * 3
STOPPING, PROMOTING = {"stop_once": True}, {"stop_once": False}
LARGER = {"smaller_is_better": False}
FIVE = {"max_trials": 5, "max_length": {"batches": 900}, "mode": "standard", "max_rungs": 2}


def asha(**keys: Any) -> dict[str, Any]:
    """Return the `searcher` of 12 trials in one bracket with rungs at 1000, 3000 and 9000."""
    searcher = {
        "name": "adaptive_asha",
        "metric": "loss",
        "max_trials": 12,
        "divisor": 3,
        "max_length": {"batches": 9000},
    }
    return {**searcher, "mode": "aggressive", "max_rungs": 3, **keys}


def random(**keys: Any) -> dict[str, Any]:
    """Return the `searcher` of four random trials."""
    return {"name": "random", "max_trials": 4, **keys}


def replaced(metrics: list[float], number: int, by: Any) -> list[Any]:
    """Return the metrics with those of one trial replaced."""
    return [*metrics[: number - 1], by, *metrics[number:]]


@pytest.mark.parametrize(
    ("searcher", "metrics", "lengths"),
    [
        (asha(**STOPPING), UP, [FULL] + [ONE] * 11),
        (asha(**STOPPING), [UP[-1]] * 12, [FULL] * 12),  # an equal metric goes before the others, so it is the best
        (asha(**STOPPING, max_concurrent_trials=2), list(range(1, 13)), [FULL] + [ONE] * 11),
        (asha(**STOPPING), ROUNDS, [FULL, ONE, ONE, ONE] * 3),
        (asha(**STOPPING, **LARGER), UP, [FULL] * 12),
        (asha(**STOPPING, **LARGER), ROUNDS, [FULL] * 4 + [ONE, ONE, TWO, FULL] * 2),
        # The fifth trial fails at its second rung; then the fourth one does.
        (
            asha(**STOPPING),
            replaced(ROUNDS, 5, [0.01, None]),
            [*[FULL, ONE, ONE, ONE], *[TWO, ONE, ONE, ONE], *[FULL, ONE, ONE, ONE]],
        ),
        (
            asha(**STOPPING, **LARGER),
            replaced(ROUNDS, 4, [0.04, None]),
            [FULL, FULL, FULL, TWO, ONE, ONE, FULL, FULL, ONE, ONE, FULL, FULL],
        ),
        (asha(**STOPPING, max_trials=4, max_rungs=1), [0.05, 0.06, 0.07, 0.08], [[9000]] * 4),
        (asha(**PROMOTING, max_trials=4, max_rungs=1), [0.05, 0.06, 0.07, 0.08], [[9000]] * 4),
        (asha(**PROMOTING), UP, [FULL] + [TWO] * 3 + [ONE] * 8),
        (asha(**PROMOTING), [1] * 12, [FULL] + [TWO] * 3 + [ONE] * 8),
        (asha(**PROMOTING), replaced(UP, 3, [0.03, None]), [FULL] + [TWO] * 3 + [ONE] * 8),
        (asha(**PROMOTING, **LARGER), UP[::-1], [FULL] + [TWO] * 3 + [ONE] * 8),
        (asha(**PROMOTING, **LARGER), replaced(UP[::-1], 3, [0.1, None]), [FULL] + [TWO] * 3 + [ONE] * 8),
        # The first trial goes on although it is not among the best third in the end.
        (
            asha(**PROMOTING),
            [0.10, 0.11, None, *UP[:9]],
            [TWO, ONE, ONE, FULL, TWO, TWO, TWO, ONE, ONE, ONE, ONE, ONE],
        ),
        (
            asha(**PROMOTING, max_trials=6, bracket_rungs=[3, 3]),
            [0.1, 0.2, 0.3, 0.3, 0.2, 0.1],
            [TWO, ONE, ONE, ONE, ONE, TWO],
        ),
        (asha(**PROMOTING, max_length={"epochs": 12}), [1] * 12, [[1, 4, 12]] + [[1, 4]] * 3 + [[1]] * 8),
        (
            asha(**PROMOTING, max_length={"records": 576000}),
            [1] * 12,
            [[64000, 192000, 576000]] + [[64000, 192000]] * 3 + [[64000]] * 8,
        ),
        # Two brackets: three trials with two rungs, two trials with one.
        (asha(**STOPPING, **FIVE), [0.1, 0.2, 0.3, 0.4, 0.5], [[300, 900], [300], [300], [900], [900]]),
        (asha(**STOPPING, **FIVE), [0.1, None, 0.3, 0.4, 0.5], [[300, 900], [300], [300], [900], [900]]),
        (asha(**STOPPING, **FIVE, **LARGER), [0.1, 0.2, 0.3, 0.4, 0.5], [[300, 900]] * 3 + [[900]] * 2),
        (asha(**STOPPING, **FIVE, **LARGER), [0.1, None, 0.3, 0.4, 0.5], [[300, 900], [300], [300, 900], [900], [900]]),
        (asha(**PROMOTING, **FIVE), [0.1, 0.2, 0.3, 0.4, 0.5], [[300, 900], [300], [300], [900], [900]]),
        (asha(**PROMOTING, **FIVE), [0.1, None, 0.3, 0.4, 0.5], [[300, 900], [300], [300], [900], [900]]),
        (asha(**PROMOTING, **FIVE, **LARGER), [0.5, None, 0.3, 0.2, 0.1], [[300, 900], [300], [300], [900], [900]]),
        (random(max_length={"batches": 500}, max_concurrent_trials=2), [0.1, 0.1, 0.1, None], [[500]] * 4),
        (random(max_length={"records": 32017}), [0.1] * 4, [[32017]] * 4),
        (random(max_length=100, max_trials=2, max_concurrent_trials=1), [1, 1], [[100]] * 2),
        ({"name": "single", "max_length": {"batches": 500}}, [0.1], [[500]]),
    ],
)
def test_lengths(searcher: dict[str, Any], metrics: list[Any], lengths: list[list[int]]) -> None:
    """The operations of all trials wait in one queue, as in Determined's simulator."""
    assert simulate.simulate(read_config({"searcher": searcher}, 12), metrics) == lengths


def test_the_default_form() -> None:
    """Trials are stopped, in both dialects, as on Slurm."""
    searcher = asha()
    assert not read_config(searcher, 12).promotes
    assert read_config(asha(**PROMOTING), 12).promotes
    del searcher["max_length"]
    config = read_config({**searcher, "max_time": 9000, "time_metric": "batches"}, 12)
    assert not config.promotes
    assert simulate.simulate(config, UP) == [FULL] + [ONE] * 11
    assert (
        simulate.simulate(
            read_config({"name": "async_halving", "num_rungs": 3, **STOPPING, "max_length": 9000, "divisor": 3}, 12), UP
        )
        == [FULL] + [ONE] * 11
    )


def test_the_key_of_a_job_spec() -> None:
    """Its names are others, and trials are stopped."""
    space = {"x": {"type": "int", "minval": 0, "maxval": 1}}
    its = {"algorithm": "adaptive_asha", "metric": {"name": "accuracy", "goal": "maximize"}, "space": space}
    its |= {"trials": 12, "concurrent": 16, "max_length": 9000, "divisor": 3, "bracket_rungs": [3]}
    assert simulate.simulate(read_config({"command": "python a.py", "search": its}, 12), UP) == [FULL] * 12


ONE_BRACKET = asha(max_trials=10, max_concurrent_trials=3, max_length=None, max_time=900, time_metric="batches")
TWO_BRACKETS = {**ONE_BRACKET, "mode": "standard", "max_rungs": 5, "max_trials": 9, "max_time": 90}


@pytest.mark.parametrize(
    ("searcher", "period", "metrics", "lengths"),
    [
        (ONE_BRACKET, {"batches": 100}, [0] * 10, [[100, 300, 900]] + [[100]] * 9),
        (ONE_BRACKET, 100, [], [[100, 300, 900]] + [[100]] * 9),
        (ONE_BRACKET, None, list(range(10)), [[100, 300, 900]] + [[100]] * 9),
        (ONE_BRACKET, {"batches": 70}, [0] * 10, [[140, 350, 900]] + [[140]] * 9),
        ({**ONE_BRACKET, **LARGER}, {"batches": 100}, [0] * 10, [[100, 300, 900]] * 10),
        (ONE_BRACKET, None, [-100 * number for number in range(10)], [[100, 300, 900]] * 10),
        (ONE_BRACKET, None, [0, None, *[0] * 8], [[100, 300, 900]] + [[100]] * 9),
        # Six trials with rungs 10, 30, 90, and three with 30, 90; trial 3 is the first one of the second bracket.
        (TWO_BRACKETS, {"batches": 10}, [0] * 9, [[10, 30, 90], [10], [30, 90], [10], [10], [30], [10], [10], [30]]),
        (random(max_concurrent_trials=2, max_length=100), 10, [0] * 4, [[100]] * 4),
        (random(max_trials=2), None, [0] * 2, [[], []]),
    ],
)
def test_one_trial_after_the_other(
    searcher: dict[str, Any], period: Any, metrics: list[Any], lengths: list[list[int]]
) -> None:
    """A trial validates at 0, each period and its full length; its metric grows by 1 each time."""
    config = read_config({"searcher": searcher, "min_validation_period": period}, 12)
    assert simulate.simulate_sequential(config, metrics) == lengths


def test_a_grid_is_run_once() -> None:
    """Each point is one trial."""
    entry = {"type": "int", "minval": 0, "maxval": 3, "count": 4}
    config = read_config(
        {"searcher": {"name": "grid", "max_length": 100, "max_concurrent_trials": 2}, "hyperparameters": {"a": entry}},
        4,
    )
    assert simulate.simulate(config, [1, None, 1, 1]) == [[100]] * 4
    assert simulate.simulate_sequential(config, [1, None, 1, 1]) == [[100]] * 4


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (
            {"searcher": {"name": "adaptiv_asha"}},
            f"searcher.name: found 'adaptiv_asha'; accepted: {NAMES}; did you mean adaptive_asha?",
        ),
        ({"searcher": 3}, f"searcher.name: found 3; accepted: {NAMES}"),
        (asha(divisor=1), "divisor: found 1; accepted: a number above 1, up to 1000"),
        (
            asha(max_length={"batches": 1, "epochs": 2}),
            "max_length: found {'batches': 1, 'epochs': 2}; accepted: one of batches, epochs, records",
        ),
        (asha(max_length={"batches": "many"}), "max_length.batches: found 'many'; accepted: a whole number"),
        (asha(max_trials=-1), "max_trials: found -1; accepted: a whole number"),
    ],
)
def test_refused(fields: dict[str, Any], text: str) -> None:
    """The message has the place, what was found and what is accepted."""
    assert refusal_of(UsageError, read_config, fields, 12) == text


def run(tmp_path: Path, config: str, metrics: str, *flags: str) -> subprocess.CompletedProcess[str]:
    """Run the simulator as a user does."""
    (tmp_path / "config.yaml").write_text(config)
    (tmp_path / "metrics.json").write_text(metrics)
    command = [sys.executable, "-m", "slurm_plugin.experiment.simulate", "config.yaml", "metrics.json", *flags]
    return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)


def test_the_command(tmp_path: Path) -> None:
    """It reads a whole experiment file and prints one JSON object."""
    config = "name: a\nentrypoint: model_def:Trial\nsearcher: " + json.dumps(asha(**STOPPING, max_trials=3))
    config += "\nhyperparameters: {rate: {type: log, base: 10, minval: -4, maxval: 1e-1}}"
    config += "\nmin_validation_period: {batches: 1000}\n"
    done = run(tmp_path, config, "[0.1, null, 0.3]")
    assert (done.returncode, done.stdout, done.stderr) == (0, '{"trials": [[3000, 9000], [3000], [3000]]}\n', "")
    done = run(tmp_path, config, "[]", "--sequential")
    assert (done.returncode, done.stdout) == (0, '{"trials": [[3000, 9000], [3000], [3000]]}\n')


@pytest.mark.parametrize(
    ("metrics", "text"),
    [
        ("[0.1]", "found the metrics of 1 trials, and the search began trial 2; accepted: a metric for each trial"),
        ("{}", "metrics.json: found {}; accepted: a list, such as [0.1, 0.2, null]"),
        ('[0.1, "x", 1]', "metrics.json: trial 2: found 'x'; accepted: a number, null, or a list of them"),
    ],
)
def test_the_command_refuses(tmp_path: Path, metrics: str, text: str) -> None:
    """Wrong usage ends with 2 and one message."""
    done = run(tmp_path, json.dumps({"searcher": asha(max_trials=3)}), metrics)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", text + "\n")
