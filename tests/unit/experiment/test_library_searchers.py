"""The search algorithms of other packages, with the packages themselves, on Branin's function."""

import math
import statistics
from functools import cache

import pytest

from slurm_plugin.experiment.searchers import make, model
from slurm_plugin.records.experiments import Proposal, Searcher
from tests.unit.experiment.branin import (
    ALL,
    ANNEAL,
    BAYES,
    CHEAP,
    CMAES,
    GP,
    OPTUNA,
    POI,
    TPE,
    TRIALS,
    UCB,
    Call,
    branin,
    losses,
    run,
    searched,
)  # fmt: skip

pytestmark = pytest.mark.usefixtures("one_thread")
FEW = 18  # trials: ten random ones, and eight that depend on results


@cache
def by_chance() -> float:
    """Return the median of the best losses of random searches."""
    found = [run(make(searched(("random", "{}"), seed=each)), TRIALS, 1, lambda _: 0.0)[0] for each in range(40)]
    return statistics.median(min(losses(each)) for each in found)


@cache
def on_branin(algorithm: tuple[str, str], at_once: int) -> tuple[list[Proposal], list[Call]]:
    """Run one algorithm on Branin's function; one that is slow for a few proposals after its random ones."""
    trials = TRIALS if algorithm in CHEAP else FEW
    return run(make(searched(algorithm)), trials, at_once, lambda values: branin(**values))


@pytest.mark.parametrize(
    ("algorithm", "seed", "first", "trials"),
    [
        (BAYES, 2, 10, 16), (UCB, 4, 10, TRIALS), (POI, 3, 10, 16), (TPE, 9, 8, TRIALS), (ANNEAL, 6, 1, TRIALS),
        (OPTUNA, 0, 10, TRIALS), (GP, 1, 10, 22), (CMAES, 6, 1, TRIALS),
    ],
)  # fmt: skip
@pytest.mark.full  # 15 s
def test_it_learns(algorithm: tuple[str, str], seed: int, first: int, trials: int) -> None:
    """The best is three times better than random search's median best of 30, and not one of the random first ones."""
    found = losses(run(make(searched(algorithm, seed=seed)), trials, 1, lambda values: branin(**values))[0])
    assert min(found) < by_chance() / 3
    assert found.index(min(found)) >= first


@pytest.mark.parametrize("algorithm", ALL, ids="".join)
def test_no_duplicates(algorithm: tuple[str, str]) -> None:
    """With eight trials at once each proposal is a new point."""
    points = [tuple(each.values.values()) for each in on_branin(algorithm, 8)[0]]
    distances = [math.dist(a, b) for place, a in enumerate(points) for b in points[:place]]
    assert min(distances) > 1e-4


@pytest.mark.parametrize("algorithm", [TPE, ANNEAL, OPTUNA], ids="".join)
def test_choices_that_are_mappings(algorithm: tuple[str, str]) -> None:
    """A choice may hold several values. The algorithm learns which one is best."""
    vals = [{"name": "sgd", "momentum": 0.9}, {"name": "adam"}, {}]
    space = {"optimizer": {"type": "categorical", "vals": vals}, "lr": {"type": "double", "minval": 0, "maxval": 1}}
    search = searched(algorithm, seed=1)._replace(space=space)
    found = run(make(search), TRIALS, 1, lambda values: float(vals.index(values["optimizer"]) != 1))[0]
    assert len(found) == TRIALS
    assert sum(each.values["optimizer"] == vals[1] for each in found) > TRIALS / 3


@pytest.mark.parametrize("algorithm", ALL, ids="".join)
def test_a_proposal_depends_on_the_calls_alone(algorithm: tuple[str, str]) -> None:
    """A searcher that is rebuilt from the calls, as each task does, proposes the same. A proposal leaves no trace."""
    proposals, calls = on_branin(algorithm, 8)
    steps = range(1, TRIALS) if algorithm in CHEAP else (8, 11, 15, 17)
    for before in steps:
        rebuilt = make(searched(algorithm))
        rebuilt.propose(1)
        place = calls.index(("created", (before + 1, proposals[before])))
        for name, arguments in calls[:place]:
            getattr(rebuilt, name)(*arguments)
        if before % 3 == 0:
            rebuilt.propose(before + 1)
        assert rebuilt.propose(before + 1) == proposals[before], before


def with_pending(algorithm: tuple[str, str], pending: int) -> Searcher:
    """Return a searcher that knows ten trials that have ended, and so many that run."""
    searcher = make(searched(algorithm, trials=200))
    run(searcher, 10, 1, lambda values: branin(**values))
    chance = make(searched(("random", "{}"), trials=200))
    for number in range(11, 11 + pending):
        searcher.created(number, chance.propose(number, beyond=True) or Proposal({}))
    return searcher


@pytest.mark.parametrize("algorithm", [UCB, BAYES, GP], ids="".join)
def test_a_model_avoids_the_trials_that_run(algorithm: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a new result, eight proposals in a row are far from each other, and none was replaced by a random one."""
    monkeypatch.setattr(model, "TRIES", 0)
    searcher, points = with_pending(algorithm, 0), []
    for number in range(11, 19):
        proposal = searcher.propose(number)
        assert proposal
        searcher.created(number, proposal)
        points.append(tuple(proposal.values.values()))
    assert min(math.dist(a, b) for place, a in enumerate(points) for b in points[:place]) > 0.5


def test_annealing_counts_the_trials_that_run() -> None:
    """The more trials there are, the nearer to the best one it proposes."""
    algorithm = ("anneal_search", '{"avg_best_idx": 1}')
    best = min(on_branin(algorithm, 1)[0][:10], key=lambda each: branin(**each.values)).values

    def distance(pending: int) -> float:
        found = with_pending(algorithm, pending).propose(150)
        assert found
        return max(abs(found.values[name] - best[name]) for name in best)

    assert distance(100) <= 15 / (1 + 110 * 0.1) < distance(0)


def test_tpe_ignores_the_trials_that_run() -> None:
    """They have no value, and would count as bad ones."""
    assert with_pending(TPE, 5).propose(50) == with_pending(TPE, 0).propose(50)
