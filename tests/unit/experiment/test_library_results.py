"""What the searchers of other packages make of results, of all kinds of hyperparameters, and of one another."""

import math
from typing import Any, Final

import pytest

from slurm_plugin.experiment.searchers import make
from slurm_plugin.records.experiments import CANCELLED, COMPLETED, FAILED, INVALID, STOPPED, Proposal, Searcher
from tests.unit.experiment.branin import ALL, ANNEAL, BAYES, CHEAP, CMAES, GP, OPTUNA, TPE, UCB, branin, run, searched

pytestmark = pytest.mark.usefixtures("one_thread")
MIXED: Final = {
    "lr": {"type": "log", "minval": -4, "maxval": -1},
    "net": {
        "layers": {"type": "int", "minval": 1, "maxval": 4},
        "act": {"type": "categorical", "vals": ["relu", "gelu"]},
    },
    "batch": 32,
    "seed": {"type": "const", "val": [1, 2]},
}
NUMBERS: Final = {"lr": MIXED["lr"], "net": {"layers": {"type": "int", "minval": 1, "maxval": 4}}, "batch": 32}
FEW: Final = {
    "n": {"type": "int", "minval": 1, "maxval": 3},
    "act": {"type": "categorical", "vals": ["relu", "gelu"]},
}


def told(
    searcher: Searcher, number: int, value: float | None, state: str = COMPLETED, by: Searcher | None = None
) -> Proposal:
    """Propose a trial, report its value, and end it. `by`: another searcher that proposes it."""
    proposal = (by or searcher).propose(number)
    assert proposal
    searcher.created(number, proposal)
    if value is not None:
        searcher.reported(number, 1.0, value)
    searcher.ended(number, state)
    return proposal


@pytest.mark.parametrize("algorithm", ALL, ids="".join)
def test_all_kinds_of_hyperparameters(algorithm: tuple[str, str]) -> None:
    """Values lie in their ranges, exponents of a log range evenly, constants stay, and every choice is tried."""
    hyperparameters: dict[str, Any] = NUMBERS if algorithm in (BAYES, UCB, CMAES) or "poi" in algorithm[1] else MIXED
    searcher = make(searched(algorithm, space=hyperparameters))
    found = [each.values for each in run(searcher, 14, 4, lambda values: values["net"]["layers"])[0]]
    assert all(1e-4 <= each["lr"] <= 1e-1 for each in found)
    assert sum(each["lr"] < 10**-2.5 for each in found) in range(2, 13)
    assert {each["net"]["layers"] for each in found} <= {1, 2, 3, 4}
    assert all(type(each["net"]["layers"]) is int and each["batch"] == 32 for each in found)
    if hyperparameters is MIXED:
        assert {each["net"]["act"] for each in found} == {"relu", "gelu"}
        assert all(each["seed"] == [1, 2] for each in found)


@pytest.mark.parametrize("algorithm", [TPE, ANNEAL, OPTUNA, GP], ids="".join)
def test_a_small_space_is_searched_whole(algorithm: tuple[str, str]) -> None:
    """Six points are six trials. The seventh repeats one: the program may be random."""
    proposals, _ = run(make(searched(algorithm, space=FEW, trials=7)), 7, 2, lambda values: values["n"])
    assert len({tuple(each.values.items()) for each in proposals[:6]}) == 6


@pytest.mark.parametrize("algorithm", [BAYES, ANNEAL, OPTUNA], ids="".join)
def test_failed_trials_are_avoided(algorithm: tuple[str, str]) -> None:
    """A failed trial counts as the worst value, whatever it reported: the half of the space where all fail is left."""
    searcher = make(searched(algorithm, trials=40))
    found = []
    for number in range(1, 29 if algorithm in CHEAP else 21):
        proposal = searcher.propose(number)
        assert proposal
        found.append(proposal.values)
        searcher.created(number, proposal)
        is_bad = proposal.values["x"] > 2.5
        searcher.reported(number, 1.0, -1000.0 if is_bad else branin(**proposal.values))
        searcher.ended(number, FAILED if is_bad else COMPLETED)
    assert sum(each["x"] > 2.5 for each in found[-10:]) <= 3


@pytest.mark.parametrize("algorithm", [each for each in ALL if each != CMAES], ids="".join)
def test_an_invalid_trial_does_not_count(algorithm: tuple[str, str]) -> None:
    """It changes no proposal, and the budget grows by one trial in its place."""
    with_it, without = (make(searched(algorithm, trials=13)) for _ in range(2))
    chance = make(searched(("random", "{}")))
    for number in range(1, 13):
        told(with_it, number, float(number % 5), by=chance)
        told(without, number, float(number % 5), by=chance)
    told(with_it, 13, 0.5, INVALID)
    assert not with_it.exhausted
    assert with_it.propose(14) == without.propose(14)
    told(with_it, 14, 1.0)
    assert with_it.exhausted
    assert with_it.propose(15) is None
    with_it.extend(1)
    assert with_it.propose(15)


@pytest.mark.parametrize("algorithm", ALL, ids="".join)
@pytest.mark.parametrize(
    "values", [(math.nan, math.inf, -math.inf), (1e308, -1e308, 1.0), (3.0, 3.0, 3.0), (None, None, None)], ids=repr
)
def test_values_of_any_size(algorithm: tuple[str, str], values: tuple[float | None, ...]) -> None:
    """Values that are no numbers, huge ones, equal ones, or none at all end no search."""
    searcher, chance = make(searched(algorithm, trials=20)), make(searched(("random", "{}")))
    by = searcher if algorithm in CHEAP else chance
    for number in range(1, 15):
        told(searcher, number, values[number % 3], (COMPLETED, STOPPED, FAILED, CANCELLED)[number % 4], by)
    found = searcher.propose(15)
    assert found
    assert -5 <= found.values["x"] <= 10


@pytest.mark.parametrize("algorithm", ALL, ids="".join)
@pytest.mark.parametrize(
    "values",
    [{}, {"x": "1", "y": 2}, {"x": math.nan, "y": 2}, {"x": 10**400, "y": 2}, {"x": {"y": 1}}, {"x": [1], "y": None}],
    ids=str,
)
def test_values_that_are_not_of_the_space(algorithm: tuple[str, str], values: dict[str, Any]) -> None:
    """A trial that somebody wrote into the journal ends no search."""
    searcher = make(searched(algorithm))
    searcher.created(1, Proposal(values))
    assert not searcher.reported(1, 1.0, 0.5)
    searcher.ended(1, COMPLETED)
    assert searcher.propose(2)


@pytest.mark.parametrize(("goal", "use", "best"), [(True, "best", 2), (True, "last", 1), (False, "best", 3)])
def test_the_value_that_counts(goal: bool, use: str, best: int) -> None:
    """Annealing stays near the best trial by the metric: smaller or larger, the best or the last value."""
    search = searched(("anneal_search", '{"avg_best_idx": 1, "shrink_coef": 1000}'), trials=9)
    searcher = make(search._replace(metric=search.metric._replace(smaller_is_better=goal, use=use)))
    points = []
    for number, values in enumerate(((1.0, 1.5), (0.5, 2.0), (3.0, 2.5)), 1):
        proposal = searcher.propose(number)
        assert proposal
        points.append(proposal.values)
        searcher.created(number, proposal)
        for value in values:
            searcher.reported(number, 1.0, value)
        searcher.ended(number, COMPLETED)
    found = searcher.propose(4)
    assert found
    near = [math.dist(tuple(each.values()), tuple(found.values.values())) for each in points]
    assert near.index(min(near)) == best - 1


def test_several_algorithms_take_turns() -> None:
    """They share the budget, each knows the others' trials, and a searcher rebuilt from the calls proposes the same."""
    search = searched(TPE, ANNEAL, CMAES, ("random", "{}"), trials=24, concurrent=0)
    proposals, calls = run(make(search), 24, 8, lambda values: branin(**values))
    assert [each.algorithm for each in proposals] == [0, 1, 2, 3] * 6
    assert len({tuple(each.values.items()) for each in proposals}) == 24
    rebuilt = make(search)
    for name, arguments in calls:
        if name == "created":
            assert rebuilt.propose(arguments[0]) == arguments[1]
        getattr(rebuilt, name)(*arguments)
    assert rebuilt.exhausted
    rebuilt.extend(1)
    assert rebuilt.propose(25)


def test_an_algorithm_learns_from_the_others() -> None:
    """Annealing goes to the best point, which random search has found."""
    searcher = make(searched(("random", "{}"), ("anneal_search", '{"avg_best_idx": 1, "shrink_coef": 1000}')))
    point = told(searcher, 1, 1.0).values
    found = searcher.propose(2)
    assert found
    assert found.algorithm == 1
    assert math.dist(tuple(point.values()), tuple(found.values.values())) < 0.1
