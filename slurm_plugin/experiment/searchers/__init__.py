"""The search algorithms, as state machines (record.Searcher). A module is imported when its algorithm is used."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Final

from slurm_plugin.errors import UsageError, printable
from slurm_plugin.experiment.searchers import libraries
from slurm_plugin.experiment.searchers.libraries import needs
from slurm_plugin.records.experiments import Algorithm, Proposal, Search, Searcher
from slurm_plugin.records.nearest import suggestion

__all__ = ["ALGORITHMS", "make", "needs"]

# The name of an algorithm -> its module here, and its class, which is made of (Search, options).
ALGORITHMS: Final[Mapping[str, tuple[str, str]]] = {
    "single": ("simple", "Single"),
    "random": ("simple", "Random"),
    "grid": ("simple", "Grid"),
    "adaptive_asha": ("asha", "AdaptiveASHA"),
    "bayes_opt_search": ("bayes", "BayesSearcher"),
    "tpe_search": ("hyperopt_search", "TpeSearcher"),
    "anneal_search": ("hyperopt_search", "AnnealSearcher"),
    "optuna": ("optuna_search", "OptunaSearcher"),
}


def make(search: Search) -> Searcher:
    """Return the searcher of a search; several algorithms take turns.

    Raise UsageError for an unknown algorithm, MissingError if its package is not installed.
    """
    needs(search)
    made = [_made(search._replace(algorithms=(each,)), each) for each in search.algorithms]
    return made[0] if len(made) == 1 else Turns(made)


def _made(search: Search, algorithm: Algorithm) -> Searcher:
    """Return the searcher of one algorithm."""
    if algorithm.name not in ALGORITHMS:
        near = suggestion(algorithm.name, ALGORITHMS)
        text = f"found the algorithm {printable(algorithm.name)!r}; accepted: {', '.join(ALGORITHMS)}{near}"
        raise UsageError(text)
    module, kind = ALGORITHMS[algorithm.name]
    try:
        searcher: Searcher = getattr(import_module(f"{__name__}.{module}"), kind)(search, algorithm.options)
    except ImportError as error:
        raise libraries.unusable(algorithm, error) from error
    return searcher


class Turns:
    """Several algorithms that share the budget: they propose in turn, and each knows all trials."""

    def __init__(self, searchers: Sequence[Searcher]) -> None:
        self._searchers = searchers

    def propose(self, number: int, *, beyond: bool = False) -> Proposal | None:
        """Return what the algorithm of this number proposes: the first one begins with trial 1."""
        index = (number - 1) % len(self._searchers)
        found = self._searchers[index].propose(number, beyond=beyond)
        return found and found._replace(algorithm=index)

    def created(self, number: int, proposal: Proposal) -> None:
        """Tell all. `algorithm` is 0 for the one that proposed it."""
        for index, each in enumerate(self._searchers):
            each.created(number, proposal._replace(algorithm=proposal.algorithm - index))

    def reported(self, number: int, time: float, value: float) -> bool:
        """Tell all. Return whether one of them stops the trial."""
        stops = [each.reported(number, time, value) for each in self._searchers]
        return any(stops)

    def ended(self, number: int, state: str) -> None:
        """Tell all."""
        for each in self._searchers:
            each.ended(number, state)

    def extend(self, trials: int) -> None:
        """Add to the budget that they share."""
        for each in self._searchers:
            each.extend(trials)

    @property
    def exhausted(self) -> bool:
        """Whether the budget is used up."""
        return all(each.exhausted for each in self._searchers)
