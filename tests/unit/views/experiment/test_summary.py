"""The state of an experiment, what is left of it, and when it is expected to end."""

import json
import math

import pytest

from slurm_plugin.experiment.fold import Fold
from slurm_plugin.records.experiments import (
    CANCELLED,
    COMPLETED,
    FAILED,
    INVALID,
    RUNNING,
    STOPPED,
    WAITING,
    Algorithm,
    Report,
    State,
    Trial,
)
from slurm_plugin.views.experiment import summary, text
from tests import experiments
from tests.experiments import BEGAN

EXPERIMENT = experiments.experiment(trials=4)


def trials(*states: str, took: float = 100.0) -> tuple[Trial, ...]:
    """Return trials in these states; those that have ended took this many seconds."""
    return tuple(
        Trial(number, {}, state, began=BEGAN, ended=0.0 if state in (RUNNING, WAITING) else BEGAN + took)
        for number, state in enumerate(states, 1)
    )


@pytest.mark.parametrize(
    ("state", "word", "left"),
    [
        (State(budget=4), "queued", 4),
        (State(trials(RUNNING), budget=4), "running", 4),
        (State(trials(COMPLETED, RUNNING), budget=4), "running", 3),
        (State(trials(COMPLETED, RUNNING), budget=4, paused=True), "paused", 3),
        (State(trials(COMPLETED, RUNNING), budget=4, stopped=True), "stopping", 1),
        (State(trials(COMPLETED, STOPPED), budget=4, stopped=True), "stopped", 0),
        (State(trials(COMPLETED, CANCELLED), budget=4, stopped=True), "cancelled", 0),
        (State(trials(*[STOPPED] * 4), budget=4), "finished", 0),
        (State(trials(*[COMPLETED] * 4), budget=4, paused=True), "finished", 0),
        (State(trials(*[FAILED] * 4), budget=4), "failed", 0),
        # A trial that refused its hyperparameters is replaced.
        (State(trials(*[COMPLETED] * 3, INVALID), budget=4), "running", 1),
        (State(trials(*[COMPLETED] * 3, INVALID), budget=0, exhausted=True), "finished", 0),
        (State(trials(*[COMPLETED] * 3, WAITING), budget=4), "running", 1),
    ],
)
def test_state(state: State, word: str, left: int) -> None:
    """The word for people, and the trials that have not ended."""
    found = summary.summary(EXPERIMENT, state, BEGAN)
    assert (found.state, found.left) == (word, left)
    assert found.is_over == (left == 0)


def test_a_grid() -> None:
    """What is left of it are its points without a trial, too. An invalid one is not replaced."""
    space = {"x": {"type": "int", "minval": 1, "maxval": 9, "count": 9}}
    grid = experiments.experiment(algorithms=(Algorithm("grid"),), space=space, trials=0, max_length=0)
    state = Fold(grid).state._replace(trials=trials(COMPLETED, INVALID, RUNNING), concurrent=1)
    found = summary.summary(grid, state, BEGAN)
    assert (found.state, found.left, found.budget, found.ends_in_s) == ("running", 7, 8, 700.0)
    assert text.status(grid, state, BEGAN, on=False)[1].startswith("  grid, 8 trials, 1 at once; ")
    ended = state._replace(trials=trials(*[COMPLETED] * 8, INVALID), exhausted=True)
    found = summary.summary(grid, ended, BEGAN)
    assert (found.state, found.left, found.ended, found.budget) == ("finished", 0, 8, 8)


@pytest.mark.parametrize(
    ("state", "seconds"),
    [
        (State(trials(RUNNING), 4, 2), None),  # no trial has ended: nothing is known
        (State(trials(COMPLETED, COMPLETED), 4, 2), 100.0),  # two more at once
        (State(trials(COMPLETED, COMPLETED), 4, 1), 200.0),
        (State(trials(COMPLETED, RUNNING), 4, 2), 130.0),  # 60 left of the one that runs, and two more
        (State(trials(COMPLETED, COMPLETED, COMPLETED, RUNNING), 4, 8), 60.0),
        (State(trials(COMPLETED, RUNNING), 4, 2, paused=True), None),
        (State(trials(COMPLETED, RUNNING), 4, 2, stopped=True), 60.0),
        (State(trials(*[COMPLETED] * 4), 4, 2), None),
    ],
)
def test_expected_end(state: State, seconds: float | None) -> None:
    """Each trial is expected to take as long as those that have ended, on average."""
    assert summary.summary(EXPERIMENT, state, BEGAN + 40).ends_in_s == seconds


def test_the_best_has_a_finite_value() -> None:
    """A value that is not finite is the worst one, and no best one, whichever way is better."""
    for value, smaller in ((math.inf, True), (-math.inf, False)):
        metric = EXPERIMENT.search.metric._replace(smaller_is_better=smaller)
        one = EXPERIMENT._replace(search=EXPERIMENT.search._replace(metric=metric))
        bad = Trial(1, {}, RUNNING, reports=(Report(1, value),))
        assert summary.summary(one, State((bad,), 2), 0).best is None
        good = Trial(2, {}, RUNNING, reports=(Report(1, 3.0), Report(2, value)))
        assert summary.summary(one, State((bad, good), 2), 0).best == good
        for state in (FAILED, INVALID):  # whatever they reported before
            better = Trial(3, {}, state, reports=(Report(1, -9.0 if smaller else 9.0),))
            assert summary.summary(one, State((good, better), 2), 0).best == good


def test_what_is_spent() -> None:
    """Durations and lengths of all trials together, beside the length that the budget would have."""
    reports = (Report(1000, 1.0), Report(3000, 0.5))
    state = State((Trial(1, {}, RUNNING, began=BEGAN, reports=reports), *trials(COMPLETED)[:0]), 4)
    found = summary.summary(EXPERIMENT, state, BEGAN + 60)
    assert (found.spent_s, found.trained, found.full) == (60, 3000, 36000)


def test_form() -> None:
    """--json: fields that scripts may use, and the best trial with its values."""
    state = experiments.state(20, running=4, budget=30)
    found = json.loads(json.dumps(summary.form(EXPERIMENT, state, BEGAN + 9000)))
    best = found.pop("best")
    assert found.pop("ends_in_s") > 0
    assert found == {
        "v": 1, "name": "mnist", "state": "running", "metric": "validation_loss", "smaller_is_better": True,
        "counts": {name: sum(each.state == name for each in state.trials) for name in found["counts"]},
        "budget": 30, "left": 30 - found["counts"]["completed"] - found["counts"]["stopped"]
        - found["counts"]["failed"] - found["counts"]["cancelled"], "concurrent": 8,
        "spent_s": found["spent_s"], "trained": sum(map(summary.trained, state.trials)), "full": 270000.0,
        "unit": "batches", "arrays": [4711],
    }  # fmt: skip
    values = {each.number: each.value(EXPERIMENT.search.metric) for each in state.trials if each.reports}
    assert best["value"] == min(each for each in values.values() if each is not None)
    assert values[best["trial"]] == best["value"]


def test_rows() -> None:
    """CSV: a row for each trial, a column for each hyperparameter by its dotted name, and full precision."""
    state = experiments.state(5)
    head, *rows = summary.rows(EXPERIMENT, state.trials, BEGAN)
    assert head[-6:] == [
        "hp.optimizer.name", "hp.optimizer.lr", "hp.dropout", "hp.layers", "hp.batch_size", "hp.global_seed",
    ]  # fmt: skip
    for trial, row in zip(state.trials, rows, strict=True):
        assert row[head.index("trial")] == str(trial.number)
        assert float(row[head.index("hp.optimizer.lr")]) == trial.values["optimizer"]["lr"]
        assert row[head.index("hp.global_seed")] == "7"
