"""optuna: TPE, a Gaussian process, or CMA-ES, by Optuna. Its samplers know the trials that run."""

import copy
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Final

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.samplers import BaseSampler, CmaEsSampler, GPSampler, TPESampler
from optuna.storages import InMemoryStorage
from optuna.trial import TrialState, create_trial

from slurm_plugin.experiment.searchers.model import LibrarySearcher, Point
from slurm_plugin.records.experiments import CANCELLED, INVALID, Proposal, Search

SAMPLERS: Final[Mapping[str, Callable[..., BaseSampler]]] = {"tpe": TPESampler, "gp": GPSampler, "cmaes": CmaEsSampler}
QUIET: Final[Mapping[str, Any]] = {
    "tpe": {},
    "gp": {"warn_independent_sampling": False},
    "cmaes": {"warn_independent_sampling": False},
}


class OptunaSearcher(LibrarySearcher):
    """A searcher that asks a sampler of Optuna, with a study in memory that holds all trials."""

    def __init__(self, search: Search, options: Mapping[str, Any]) -> None:
        super().__init__(search, options)
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._distributions: dict[str, BaseDistribution] = {
            each.name: CategoricalDistribution(range(each.choices)) if each.choices else FloatDistribution(0, 1)
            for each in self._dimensions
        }
        self._storage = InMemoryStorage()
        self._study = optuna.create_study(storage=self._storage, sampler=self._sampler(0))
        self._places: dict[int, int] = {}  # trial -> its id in the storage

    def _suggest(self, number: int, seed: int) -> Point:
        """Return the sampler's suggestion, asked in a copy of the study: the trial is not created yet."""
        study = copy.deepcopy(self._study)
        study.sampler = self._sampler(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # infinite values
            found = study.ask(self._distributions).params
        return tuple(float(found[each.name]) for each in self._dimensions)

    def created(self, number: int, proposal: Proposal) -> None:
        """Add the trial to the study. CMA-ES counts it in its generation if it proposed it."""
        super().created(number, proposal)
        if number not in self._trials:
            return
        point = self._trials[number].point
        values = {
            each.name: int(place) if each.choices else place
            for each, place in zip(self._dimensions, point, strict=True)
        }
        trial = create_trial(state=TrialState.RUNNING, params=values, distributions=self._distributions)
        study = self._storage.get_study_id_from_name(self._study.study_name)
        self._places[number] = place = self._storage.create_new_trial(study, trial)
        if self._options["sampler"] == "cmaes" and not proposal.algorithm:
            self._sampler(0).sample_relative(self._study, self._storage.get_trial(place), self._distributions)

    def ended(self, number: int, state: str) -> None:
        """Set the trial's value in the study."""
        super().ended(number, state)
        if number not in self._trials:
            return
        if state in (INVALID, CANCELLED):
            self._storage.set_trial_state_values(self._places[number], TrialState.FAIL)
        else:
            loss = self._trials[number].loss(self._search.metric)
            self._storage.set_trial_state_values(self._places[number], TrialState.COMPLETE, [loss])

    def _sampler(self, seed: int) -> BaseSampler:
        """Return the sampler of the options; those that are None have Optuna's defaults."""
        kind, beside = self._options["sampler"], ("sampler", "num_samples")
        options = {key: value for key, value in self._options.items() if value is not None and key not in beside}
        return SAMPLERS[kind](**options, **QUIET[kind], seed=seed)
