"""The state that the events make. Pure."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.experiment.fold import Fold
from slurm_plugin.records import experiments
from slurm_plugin.records.experiments import Algorithm, Experiment, Metric, Proposal, Search

SEARCH = Search(Metric("loss"), {}, (Algorithm("random"),), trials=5, concurrent=4, max_length=100)
NEW: dict[str, Any] = {"e": "new", "n": 1, "values": {"lr": 0.1}, "at": 1.0}
TAKE: dict[str, Any] = {"e": "take", "n": 1, "task": "5_0", "job": 6, "at": 2.0}
Events = list[dict[str, Any]]


class Searcher:
    """Stops a trial at a value above 1, and writes down what it is told."""

    exhausted = False

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def propose(self, number: int, *, beyond: bool = False) -> Proposal | None:
        return Proposal({"number": number, "beyond": beyond})

    def created(self, number: int, proposal: Proposal) -> None:
        self.told.append(("created", number, dict(proposal.values)))

    def reported(self, number: int, time: float, value: float) -> bool:
        self.told.append(("reported", number, time, value))
        return value > 1

    def ended(self, number: int, state: str) -> None:
        self.told.append(("ended", number, state))

    def extend(self, trials: int) -> None:
        self.told.append(("extend", trials))


def folded(events: Events, searcher: Searcher | None = None) -> Fold:
    """Return the fold of events."""
    fold = Fold(Experiment("x", SEARCH), searcher)
    for each in events:
        fold.apply(each)
    return fold


def report(time: Any, value: Any) -> dict[str, Any]:
    """Return the event of a validation of trial 1."""
    return {"e": "report", "n": 1, "time": time, "value": value, "at": 3.0}


def test_the_searcher_hears_each_event_once() -> None:
    """In the journal's order, without the reports that come again after a restart and those of a trial that is over."""
    searcher = Searcher()
    events: Events = [
        NEW,
        NEW,
        TAKE,
        report(10, 0.5),
        report(20, 0.6),
        report(10, 0.4),
        report(20, 9.0),
        report(30, None),
    ]
    events += [{"e": "end", "n": 1, "state": "stopped"}, report(40, 0.1), {"e": "end", "n": 1, "state": "failed"}]
    fold = folded([*events, {"e": "extend", "trials": 3}], searcher)
    assert searcher.told == [
        ("created", 1, {"lr": 0.1}),
        ("reported", 1, 10.0, 0.5),
        ("reported", 1, 20.0, 0.6),
        ("reported", 1, 30.0, math.inf),
        ("ended", 1, "stopped"),
        ("extend", 3),
    ]
    assert fold.stopping == {1}
    assert fold.state.budget == 8
    assert fold.state.trials[0].state == experiments.STOPPED


def test_takes_and_requeues() -> None:
    """The same task again is a requeue; another task is a takeover. The first take counts as the beginning."""
    events: Events = [
        NEW,
        TAKE,
        {**TAKE, "at": 5.0},
        {**TAKE, "task": "5_1", "job": 9},
        {**TAKE, "task": "5_1", "job": 9},
    ]
    trial = folded(events).state.trials[0]
    assert (trial.takes, trial.restarts, trial.task, trial.job, trial.began) == (2, 2, "5_1", 9, 2.0)


@pytest.mark.parametrize(
    ("events", "fields"),
    [
        ([{"e": "pause"}], {"paused": True}),
        ([{"e": "pause"}, {"e": "stop"}, {"e": "resume"}], {"paused": False, "stopped": False}),
        ([{"e": "stop"}], {"stopped": True}),
        ([{"e": "concurrent", "to": 9}], {"concurrent": 9}),
        ([{"e": "submitted", "array": 7}, {"e": "submitted", "array": 7}], {"arrays": (7,)}),
        ([{"e": "submitted", "array": 7}, {"e": "submitted", "array": 8}], {"arrays": (7, 8)}),
        ([{"e": "extend", "trials": True}], {"budget": 5}),
        ([{**NEW, "n": number} for number in (3, 1, 2)], {"exhausted": False}),
        ([{**NEW, "n": number} for number in range(1, 6)], {"exhausted": True}),
        ([*({**NEW, "n": n} for n in range(1, 6)), {"e": "end", "n": 2, "state": "invalid"}], {"exhausted": False}),
    ],
)
def test_what_the_user_changes(events: Events, fields: dict[str, Any]) -> None:
    """Each event changes its fields. Without a searcher the budget says whether there are more trials."""
    state = folded(events).state
    assert {name: getattr(state, name) for name in fields} == fields


def test_cancel() -> None:
    """It ends every trial that is not over, and no other."""
    searcher = Searcher()
    fold = folded(
        [NEW, {**NEW, "n": 2}, {"e": "end", "n": 1, "state": "completed"}, {"e": "cancel", "at": 8.0}], searcher
    )
    assert [(each.state, each.ended) for each in fold.state.trials] == [("completed", 0.0), ("cancelled", 8.0)]
    assert fold.state.stopped
    assert searcher.told[-1] == ("ended", 2, "cancelled")


def test_a_trial_at_its_full_length_stops() -> None:
    """Also where the searcher does not say so."""
    assert folded([NEW, TAKE, report(99, 0.5)]).stopping == set()
    assert folded([NEW, TAKE, report(100, 0.5)]).stopping == {1}


def test_checkpoints() -> None:
    """A name stands for its last checkpoint. Those of a trial that is over can be removed."""
    saved: Events = [
        {"e": "checkpoint", "n": 1, "name": name, "time": time} for name, time in (("a", 1), ("b", 2), ("a", 3))
    ]
    fold = folded([NEW, TAKE, *saved])
    assert fold.state.trials[0].checkpoints == (("b", 2.0), ("a", 3.0))
    fold = folded([NEW, *saved, {"e": "end", "n": 1, "state": "failed"}, {"e": "removed", "n": 1, "name": "b"}])
    assert fold.state.trials[0].checkpoints == (("a", 3.0),)


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=3,
)
KINDS = st.sampled_from(
    ["new", "take", "report", "checkpoint", "removed", "end", "submitted", "concurrent", "extend", "pause", "cancel"]
)
FIELDS = ("n", "values", "bracket", "algorithm", "task", "job", "time", "value", "name", "state", "why", "at", "to")


@given(
    st.lists(
        st.fixed_dictionaries({"e": KINDS}, optional=dict.fromkeys((*FIELDS, "array", "trials"), ODD | st.just(1)))
    )
)
def test_no_event_breaks_a_reader(events: Events) -> None:
    """Whatever the user writes into the journal, the state keeps its types."""
    for trial in folded([NEW, *events], Searcher()).state.trials:
        assert trial.state in experiments.STATES
        assert all(type(each.value) is float and not math.isnan(each.value) for each in trial.reports)
