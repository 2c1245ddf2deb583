"""bayes_opt_search: Bayesian optimisation with a Gaussian process, by bayesian-optimization and scikit-learn.

A trial that runs counts with the mean that the process expects there, and the kernel is not fitted to it: the
uncertainty around it disappears, so no other trial is proposed there.
"""

import math
import warnings
from typing import Final

import numpy as np
from bayes_opt.acquisition import (
    AcquisitionFunction,
    ExpectedImprovement,
    ProbabilityOfImprovement,
    UpperConfidenceBound,
)
from bayes_opt.target_space import TargetSpace
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Matern

from slurm_plugin.experiment.searchers.model import LibrarySearcher, Point

FIRST: Final = 10  # random points before the process is used, as Ray Tune's
NOISE: Final = 1e-6
LARGEST: Final = 1e100  # a larger loss counts as this: its square must be a number


class BayesSearcher(LibrarySearcher):
    """Bayesian optimisation. The library maximises."""

    def _suggest(self, number: int, seed: int) -> Point:
        """Return the maximum of the acquisition function; a random point for the first trials."""
        state = np.random.RandomState(seed)
        space = TargetSpace(None, {each.name: (0.0, 1.0) for each in self._dimensions})
        finished = self._finished().values()
        worst = max((loss for _, loss in finished if math.isfinite(loss)), default=0.0)
        losses: dict[Point, float] = {}
        for point, loss in finished:
            losses[point] = min(losses.get(point, math.inf), loss if math.isfinite(loss) else worst)
        for point, loss in losses.items():
            space.register(np.array(point), -min(max(loss, -LARGEST), LARGEST))
        if self._counted < FIRST or not losses:
            return tuple(map(float, space.random_sample(random_state=state)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the fit: a length at its bound, few points
            process = GaussianProcessRegressor(
                Matern(nu=2.5), alpha=NOISE, normalize_y=True, n_restarts_optimizer=5, random_state=state
            ).fit(space.params, space.target)
            if pending := [each for each in dict.fromkeys(self._pending().values()) if each not in losses]:
                for point, mean in zip(pending, process.predict(np.array(pending)), strict=True):
                    space.register(np.array(point), mean)
                process.set_params(kernel=process.kernel_, optimizer=None).fit(space.params, space.target)
            found = self._acquisition().suggest(process, space, fit_gp=False, random_state=state)
        return tuple(map(float, found))

    def _acquisition(self) -> AcquisitionFunction:
        """Return the acquisition function of the options."""
        if self._options["kind"] == "ucb":
            return UpperConfidenceBound(kappa=self._options["kappa"])
        kinds = {"ei": ExpectedImprovement, "poi": ProbabilityOfImprovement}
        return kinds[self._options["kind"]](xi=self._options["xi"])
