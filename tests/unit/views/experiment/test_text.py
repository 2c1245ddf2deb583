"""An experiment for a terminal."""

import re

import pytest

from slurm_plugin.errors import UsageError
from slurm_plugin.records.experiments import Algorithm, Experiment, Metric, Report, Search, State, Trial
from slurm_plugin.views.experiment import series, summary, text
from tests import experiments
from tests.experiments import BEGAN, HOSTILE

STATE = experiments.state(12, seed=5, running=2, budget=20)
ONE = experiments.experiment(trials=20)
NOW = BEGAN + 3600


def test_status() -> None:
    """A screen with what people ask first."""
    lines = text.status(ONE, STATE, NOW, on=False)
    shown = [re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "DATE", line) for line in lines]
    assert shown == [
        "mnist: running",
        "  adaptive_asha, 20 trials, 8 at once; validation_loss, smaller is better",
        "  best so far: 0.165473, trial 7 (completed at 9,000 batches)",
        "    batch_size=16  dropout=0.0889174  layers=5  optimizer.lr=0.000282164  optimizer.name=rmsprop",
        "  trials: 2 running, 1 completed, 6 stopped, 3 failed; 10 left of 20",
        "  [####################....................] 50%",
        "  expected end: DATE, in about 6 min 57 s",
        "  spent: 2 h 9 min in all trials together; 24,000 of 180,000, 13% (batches)",
        "",
        "  trial  task    trained  validation_loss  since",
        "  11     4711_2  500      1.80409          30 min 0 s",
        "  12     4711_3  2,000    0.652928         30 min 0 s",
    ]


def test_status_before_and_after() -> None:
    """Nothing has begun; nothing runs any more; more run than a screen has lines."""
    assert text.status(ONE, State(budget=20), NOW, on=False)[2:] == [
        "  best so far: no trial has reported a value yet",
        "  trials: 0 running, 0 completed, 0 stopped, 0 failed; 20 left of 20",
        "  [........................................] 0%",
        "  spent: 0 s in all trials together",
    ]
    assert "expected" not in "\n".join(text.status(ONE, experiments.state(20), NOW, on=False))
    assert text.status(ONE, experiments.state(60, running=50), NOW, on=False)[-1] == "  and 40 more"


def test_colours() -> None:
    """On a terminal the same text is painted."""
    plain, painted = (text.status(ONE, STATE, NOW, on=on) for on in (False, True))
    assert [re.sub(r"\x1b\[[\d;]*m", "", line) for line in painted] == plain
    assert painted != plain


def test_hostile_text() -> None:
    """No text of a user reaches the terminal as it is: neither controls nor line breaks."""
    name = f"{HOSTILE}\n\r\x9b2J"
    search = Search(
        Metric(name), {name: {"type": "categorical", "vals": [name]}}, (Algorithm(name),), trials=3, unit=name
    )
    one = Experiment(name, search)
    trials = tuple(
        Trial(number, {name: name}, state, task=name, began=1.0, why=name, reports=(Report(1, 2.0),))
        for number, state in enumerate(("running", "failed", "stopped"), 1)
    )
    shown = [
        *text.status(one, State(trials, 3), NOW, on=False),
        *text.table(one, trials, NOW, on=False),
        *text.best(one, trials, NOW, lambda _: {"log": name, "command": name}),
        *(cell for row in summary.rows(one, trials, NOW) for cell in row),
        *(cell for row in series.rows({("training", name): [series.Point(1, 2.0, 3.0)]}) for cell in row),
    ]
    assert all(line.isprintable() for line in shown)


def test_sorts() -> None:
    """The best value first, whichever way is better; those without one last; `-` reverses."""
    without = STATE.trials[0]._replace(number=99, reports=())
    state = STATE._replace(trials=(without, *STATE.trials))
    values = {each.number: each.value(ONE.search.metric) for each in STATE.trials}
    best = sorted(values, key=lambda each: values[each] or 0.0)
    larger = ONE._replace(search=ONE.search._replace(metric=ONE.search.metric._replace(smaller_is_better=False)))
    highest = sorted((each.value(larger.search.metric) or 0.0 for each in STATE.trials), reverse=True)
    assert [each.number for each in text.chosen(ONE, state, NOW, sort="value")] == [*best, 99]
    assert [each.number for each in text.chosen(ONE, state, NOW, sort="-value")] == [*reversed(best), 99]
    found = text.chosen(larger, state, NOW, sort="value")
    assert [each.value(larger.search.metric) for each in found] == [*highest, None]
    for key in (*text.SORTS, "optimizer.lr", "optimizer.name"):
        assert sorted(each.number for each in text.chosen(ONE, state, NOW, sort=key)) == [*range(1, 13), 99]
    with pytest.raises(UsageError, match="accepted: number, state, value, length, duration, task, batch_size, dropout"):
        text.chosen(ONE, state, NOW, sort="loss")


def test_best() -> None:
    """A block for each trial; lines without a text are left out."""
    trial = text.chosen(ONE, STATE, NOW, sort="value")[0]
    assert text.best(ONE, [trial], NOW, lambda _: {"log": "/x/log", "checkpoint": ""}) == [
        "1. trial 7, completed",
        "   validation_loss  0.165473",
        "   batch_size       16",
        "   dropout          0.0889174",
        "   layers           5",
        "   optimizer.lr     0.000282164",
        "   optimizer.name   rmsprop",
        "   trained          9,000 batches",
        "   time             27 min 30 s",
        "   log              /x/log",
    ]
