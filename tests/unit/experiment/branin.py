"""Searches of Branin's function for the tests of searchers."""

import json
import math
from collections.abc import Callable
from typing import Any, Final

from slurm_plugin.records.experiments import COMPLETED, FAILED, Algorithm, Metric, Proposal, Search, Searcher

SPACE: Final = {"x": {"type": "double", "minval": -5, "maxval": 10}, "y": {"type": "double", "minval": 0, "maxval": 15}}
BAYES = ("bayes_opt_search", '{"kind": "ei"}')
UCB = ("bayes_opt_search", "{}")
POI = ("bayes_opt_search", '{"kind": "poi", "xi": 0.01}')
TPE = ("tpe_search", '{"n_initial_points": 8}')
ANNEAL = ("anneal_search", "{}")
OPTUNA = ("optuna", "{}")
GP = ("optuna", '{"sampler": "gp"}')
CMAES = ("optuna", '{"sampler": "cmaes"}')
ALL = (BAYES, UCB, POI, TPE, ANNEAL, OPTUNA, GP, CMAES)
CHEAP = (TPE, ANNEAL, OPTUNA, CMAES)  # the others fit a Gaussian process for each proposal
TRIALS = 30
Call = tuple[str, tuple[Any, ...]]


def branin(x: float, y: float) -> float:
    """Return how far Branin's function is above its minimum."""
    bent = y - 5.1 / (4 * math.pi**2) * x * x + 5 / math.pi * x - 6
    return bent**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10 - 0.397887


def searched(*algorithms: tuple[str, str], trials: int = TRIALS, seed: int = 0, **more: Any) -> Search:
    """Return a search by these algorithms, whose options are JSON."""
    named = tuple(Algorithm(name, json.loads(options)) for name, options in algorithms)
    return Search(Metric("loss"), more.pop("space", SPACE), named, trials=trials, seed=seed, **more)


def run(
    searcher: Searcher, trials: int, at_once: int, value: Callable[[Any], float | None]
) -> tuple[list[Proposal], list[Call]]:
    """Run trials, the oldest one ends first; None: it fails. Return the proposals, and all calls."""
    proposals: list[Proposal] = []
    calls: list[Call] = []

    def call(name: str, *arguments: Any) -> None:
        calls.append((name, arguments))
        getattr(searcher, name)(*arguments)

    for number in range(1, trials + at_once):
        if number <= trials:
            proposal = searcher.propose(number)
            assert proposal
            proposals.append(proposal)
            call("created", number, proposal)
        if (oldest := number - at_once + 1) >= 1:
            found = value(proposals[oldest - 1].values)
            if found is not None:
                call("reported", oldest, 1.0, found)
            call("ended", oldest, FAILED if found is None else COMPLETED)
    return proposals, calls


def losses(proposals: list[Proposal]) -> list[float]:
    """Return the values of the proposals."""
    return [branin(**each.values) for each in proposals]
