"""tpe_search and anneal_search, by hyperopt.

TPE gets the trials that have ended. Annealing also gets those that run: it samples nearer to its best
trials the more trials there are.
"""

from collections.abc import Callable, Mapping
from typing import Any

from hyperopt import anneal, hp, tpe
from hyperopt.base import JOB_STATE_DONE, JOB_STATE_RUNNING, STATUS_OK, STATUS_RUNNING, Domain, Trials

from slurm_plugin.experiment.searchers.model import LibrarySearcher, Point
from slurm_plugin.records.experiments import Search


class HyperoptSearcher(LibrarySearcher):
    """A searcher that asks one of hyperopt's functions."""

    def __init__(self, search: Search, options: Mapping[str, Any]) -> None:
        super().__init__(search, options)
        forms = [
            hp.choice(each.name, list(range(each.choices))) if each.choices else hp.uniform(each.name, 0, 1)
            for each in self._dimensions
        ]
        self._domain = Domain(None, forms)

    def _asked(self, suggest: Callable[..., Any], number: int, seed: int, trials: Trials, **options: Any) -> Point:
        """Return what a function of hyperopt suggests."""
        (found,) = suggest([number], self._domain, trials, seed, **options)
        values = found["misc"]["vals"]
        return tuple(float(values[each.name][0]) for each in self._dimensions)

    def _documents(self, points: Mapping[int, tuple[Point, float | None]]) -> Trials:
        """Return trials as hyperopt has them; those without a loss run."""
        trials = Trials()
        for number, (point, loss) in points.items():
            values = {each.name: [place] for each, place in zip(self._dimensions, point, strict=True)}
            values |= {each.name: [int(values[each.name][0])] for each in self._dimensions if each.choices}
            misc = {"tid": number, "cmd": None, "idxs": {name: [number] for name in values}, "vals": values}
            result = {"status": STATUS_RUNNING} if loss is None else {"status": STATUS_OK, "loss": loss}
            (document,) = trials.new_trial_docs([number], [None], [result], [misc])
            document["state"] = JOB_STATE_RUNNING if loss is None else JOB_STATE_DONE
            trials.insert_trial_doc(document)
        trials.refresh()
        return trials


class TpeSearcher(HyperoptSearcher):
    """The tree of Parzen estimators."""

    def _suggest(self, number: int, seed: int) -> Point:
        """Return hyperopt's suggestion; a random point for the first trials."""
        first = self._counted < self._options["n_initial_points"]
        options = {"n_startup_jobs": number + 1 if first else 1, "gamma": self._options["gamma"], "verbose": False}
        return self._asked(tpe.suggest, number, seed, self._documents({**self._finished()}), **options)


class AnnealSearcher(HyperoptSearcher):
    """Simulated annealing."""

    def _suggest(self, number: int, seed: int) -> Point:
        """Return hyperopt's suggestion."""
        pending = {trial: (point, None) for trial, point in self._pending().items()}
        options = {key: self._options[key] for key in ("avg_best_idx", "shrink_coef")}
        return self._asked(anneal.suggest, number, seed, self._documents({**self._finished(), **pending}), **options)
