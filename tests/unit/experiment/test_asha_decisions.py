"""The decisions of adaptive ASHA, and that replaying what happened repeats them."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_plugin.experiment.searchers import asha
from slurm_plugin.experiment.searchers.asha import AdaptiveASHA
from slurm_plugin.records.experiments import (
    CANCELLED,
    COMPLETED,
    ENDED,
    FAILED,
    INVALID,
    STOPPED,
    Algorithm,
    Metric,
    Proposal,
    Search,
)

SPACE = {"x": {"type": "double", "minval": 0, "maxval": 1}}


def search(trials: int, length: int, concurrent: int = 16, *, smaller: bool = True) -> Search:
    """Return a search by adaptive_asha."""
    return Search(Metric("loss", smaller), SPACE, (Algorithm("adaptive_asha"),), trials, concurrent, length)


def started(trials: int, length: int, concurrent: int = 16, *, smaller: bool = True, **options: Any) -> AdaptiveASHA:
    """Return a searcher whose trials that may begin have begun."""
    searcher = AdaptiveASHA(search(trials, length, concurrent, smaller=smaller), {"divisor": 3, **options})
    begin(searcher, 1)
    return searcher


def begin(searcher: AdaptiveASHA, first: int) -> list[int]:
    """Create all trials that may begin, from number `first`. Return their brackets."""
    brackets: list[int] = []
    while proposal := searcher.propose(first + len(brackets)):
        searcher.created(first + len(brackets), proposal)
        brackets.append(proposal.bracket)
    return brackets


@pytest.mark.parametrize(
    ("values", "stopped"),
    [
        ([0.5], [False]),
        ([0.5, 0.4], [False, False]),
        ([0.5, 0.6], [False, True]),
        ([0.5, 0.5], [False, False]),  # a value equal to the best goes before it
        ([0.5, math.nan], [False, True]),
        ([math.inf, math.inf, 0.1, 0.2], [False, False, False, True]),
        ([0.5, 0.4, 0.3, 0.35, 0.2, 0.25], [False, False, False, True, False, False]),  # two of six go on
    ],
)
def test_decisions(values: list[float], stopped: list[bool]) -> None:
    """A trial goes on if it is among the best third of those that came so far, or the best of them."""
    for sign, smaller in ((1, True), (-1, False)):
        searcher = started(9, 9, smaller=smaller, bracket_rungs=[3])
        found = [searcher.reported(number, 1, sign * value) for number, value in enumerate(values, 1)]
        assert found == stopped


def test_one_report_passes_several_rungs() -> None:
    """A value counts at each rung that the trial has reached, until it stops there; the top rung stops it."""
    searcher = started(9, 9, bracket_rungs=[3])
    assert not searcher.reported(1, 0.5, 0.1)  # no rung yet
    assert searcher.reported(1, 9, 0.5)
    assert not searcher.reported(2, 3, 0.4)
    assert not searcher.reported(2, 8.9, 9.9)
    assert not searcher.reported(3, 1, 0.3)
    assert searcher.reported(3, 3, 0.45)  # worse than 0.4 at the second rung
    assert searcher.reported(3, 9, 0.1)  # told to stop already


def test_a_failed_trial_is_the_worst_of_its_rung() -> None:
    """It counts, so that others may go on."""
    searcher = started(9, 9, bracket_rungs=[3])
    for number in (1, 2, 3):
        searcher.ended(number, FAILED)
    assert not searcher.reported(4, 1, 0.5)
    assert searcher.reported(5, 1, 0.6)
    assert not searcher.reported(6, 1, 0.55)  # the second of six, of which two go on


def test_a_trial_that_fails_while_it_stops_counts_once() -> None:
    """Its value is in the rung already."""
    searcher = started(9, 9, bracket_rungs=[3])
    assert [searcher.reported(number, 1, number) for number in (1, 3, 4, 5)] == [False, True, True, True]
    searcher.ended(3, FAILED)
    assert searcher.reported(2, 1, 2)  # the second of five, of which one goes on


def test_an_invalid_trial_leaves_its_rungs_and_is_replaced() -> None:
    """Its values no longer count, and the bracket makes another trial even if all were made."""
    searcher = started(2, 9, bracket_rungs=[3])
    assert not searcher.reported(1, 3, 0.1)
    searcher.ended(1, INVALID)
    assert not searcher.exhausted
    assert not searcher.reported(2, 3, 0.5)
    assert begin(searcher, 3) == [0]
    assert searcher.exhausted
    assert searcher.reported(3, 1, 0.6)


def test_turns() -> None:
    """The first trials of each bracket come in order, then one for each trial that stops or ends."""
    searcher = AdaptiveASHA(search(9, 90, 3), {"divisor": 3})
    assert begin(searcher, 1) == [0, 0, 1]
    searcher.ended(3, COMPLETED)
    assert not searcher.reported(1, 10, 0.1)
    assert searcher.reported(2, 10, 0.2)
    searcher.ended(2, STOPPED)  # its turn was given when it was told to stop
    assert begin(searcher, 4) == [1, 0]
    assert searcher.propose(6) is None
    beyond = searcher.propose(6, beyond=True)
    assert beyond and beyond.bracket == 0  # three trials left, and one of the other bracket


def test_more_trials() -> None:
    """They are divided as the first ones were, and idle places are filled."""
    searcher = started(9, 90, 3)
    number = 3
    while not searcher.exhausted:
        for each in range(1, number + 1):
            searcher.ended(each, COMPLETED)
        number += len(begin(searcher, number + 1))
    assert number == 9
    searcher.extend(10)
    for each in range(1, 10):
        searcher.ended(each, COMPLETED)
    brackets = begin(searcher, 10)
    assert brackets == [0, 0, 1]
    while not searcher.exhausted:
        for each in range(1, 10 + len(brackets)):
            searcher.ended(each, CANCELLED)
        brackets += begin(searcher, 10 + len(brackets))
    assert (brackets.count(0), brackets.count(1)) == (7, 3)


def test_a_bracket_that_does_not_exist() -> None:
    """A damaged journal is read."""
    searcher = AdaptiveASHA(search(9, 90, 3), {"divisor": 3})
    for number, bracket in ((1, 7), (2, -1)):
        searcher.created(number, Proposal({}, bracket))
    assert begin(searcher, 3) == [0]


Event = tuple[str, tuple[Any, ...]]


def played(searcher: AdaptiveASHA, events: Sequence[Event]) -> list[Any]:
    """Tell a searcher what happened. Return its answers."""
    return [getattr(searcher, name)(*arguments) for name, arguments in events]


@settings(max_examples=200)
@given(st.data())
def test_replaying_repeats_the_decisions(data: st.DataObject) -> None:
    """Any order of events: budgets are kept, no bracket exceeds its trials, and a replay gives the same answers."""
    plan = search(data.draw(st.integers(1, 30)), data.draw(st.integers(1, 100)), data.draw(st.integers(0, 6)))
    options = {"divisor": data.draw(st.sampled_from((2, 3, 4.5))), "mode": data.draw(st.sampled_from(asha.MODES))}
    searcher, brackets = AdaptiveASHA(plan, options), asha.brackets(plan, options)
    budget = sum(each.trials for each in brackets)
    events: list[Event] = []
    answers: list[Any] = []
    states: list[str] = []
    made: list[Proposal] = []
    went_beyond = False
    stopped: set[int] = set()

    def tell(name: str, *arguments: Any) -> Any:
        events.append((name, arguments))
        answers.append(getattr(searcher, name)(*arguments))
        return answers[-1]

    for step in data.draw(
        st.lists(st.sampled_from(("create", "beyond", "report", "report", "end", "extend")), min_size=10, max_size=60)
    ):
        running = [number for number, state in enumerate(states, 1) if not state]
        if step in ("create", "beyond"):
            if proposal := searcher.propose(len(made) + 1, beyond=step == "beyond"):
                went_beyond |= step == "beyond"
                tell("created", len(made) + 1, proposal)
                made.append(proposal)
                states.append("")
        elif step == "extend":
            more = data.draw(st.integers(1, 5))
            tell("extend", more)
            budget += more
        elif running:
            number = data.draw(st.sampled_from(running))
            if step == "report":
                time, value = data.draw(st.floats(0, 120)), data.draw(st.sampled_from((0.0, 1.0, 2.0, math.nan)))
                if tell("reported", number, time, value):
                    stopped.add(number)
                assert number not in stopped or answers[-1]
            else:
                states[number - 1] = data.draw(st.sampled_from(ENDED))
                tell("ended", number, states[number - 1])
        assert sum(state != INVALID for state in states) <= budget
        going = [
            each.bracket for number, each in enumerate(made, 1) if not states[number - 1] and number not in stopped
        ]
        assert went_beyond or all(going.count(index) <= each.concurrent for index, each in enumerate(brackets))

    again = AdaptiveASHA(plan, options)
    assert played(again, events) == answers
    while proposal := searcher.propose(len(made) + 1, beyond=True):
        assert again.propose(len(made) + 1, beyond=True) == proposal
        tell("created", len(made) + 1, proposal)
        again.created(len(made) + 1, proposal)
        made.append(proposal)
    assert searcher.exhausted and again.exhausted
    assert len(made) - states.count(INVALID) == budget
