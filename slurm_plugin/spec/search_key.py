"""The key `search` of a spec: its types, the algorithms, and the names of their options.

Values of the space and of options have any type here: slurm_plugin.experiment checks them.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

from msgspec import Meta

from slurm_plugin.spec.key_types import Directory, Part, one_or_more, whole

# Algorithms -> their own options.
OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "single": (),
    "random": (),
    "grid": (),
    "adaptive_asha": ("mode", "divisor", "max_rungs", "bracket_rungs", "stop_once"),
    "bayes_opt_search": ("num_samples", "kind", "kappa", "xi"),
    "tpe_search": ("num_samples", "n_initial_points", "gamma"),
    "anneal_search": ("num_samples", "avg_best_idx", "shrink_coef"),
    "optuna": ("num_samples", "sampler", "n_startup_trials", "n_ei_candidates", "multivariate", "constant_liar"),
}
_ALL_OPTIONS: Final = tuple(dict.fromkeys(option for options in OPTIONS.values() for option in options))
TYPED: Final = tuple(("search", key) for key in ("space", *_ALL_OPTIONS))  # paths whose scalars have types

if TYPE_CHECKING:
    Algorithm: TypeAlias = str
else:
    Algorithm = Literal[tuple(OPTIONS)]
Trials = Annotated[int, whole(1, 1_000_000)]
Length = Annotated[int, whole(1, 2**53)]
MetricName = Annotated[
    str, Meta(min_length=1, max_length=256, pattern=r"^[^\x00-\x1f\x7f]*\Z", description="the name of a reported value")
]
_SEARCHED_AS: Final = {  # keys of an experiment file, and of other systems
    **dict.fromkeys(("name", "searcher", "method", "algorithms"), "algorithm"),
    **dict.fromkeys(("hyperparameters", "parameters", "params", "search_space"), "space"),
    **dict.fromkeys(("goal", "direction", "smaller_is_better", "regex", "use"), "metric: {name: ..., goal: minimize}"),
    **dict.fromkeys(("max_trials", "n_trials", "budget", "count"), "trials"),
    **dict.fromkeys(("max_concurrent_trials", "n_jobs", "parallel"), "concurrent"),
    "time_metric": "unit",
    "max_time": "max_length",
    "experiment_seed": "seed",
}


class SearchMetric(Part, frozen=True, kw_only=True):
    """The metric that a search optimises."""

    name: MetricName
    goal: Literal["minimize", "maximize"] = "minimize"
    regex: Annotated[str, Meta(max_length=4096)] = ""
    use: Literal["best", "last"] = "best"


class Search(Part, frozen=True, kw_only=True, rename={"give": "pass"}):
    """A search of hyperparameters. None for an option: its default."""

    algorithm: Annotated[tuple[Algorithm, ...], one_or_more(f"one or several of {', '.join(OPTIONS)}")]
    metric: SearchMetric
    space: Mapping[str, Any]
    trials: Trials | None = None
    concurrent: Annotated[int, whole(0, 65536, "; 0: as many as the algorithm allows")] = 16
    max_length: Length | None = None
    unit: MetricName = "step"
    give: Literal["environment", "arguments"] = "environment"
    seed: Annotated[int, whole(0, 2**31 - 1)] | None = None
    directory: Directory | None = None
    mode: Any = None
    divisor: Any = None
    max_rungs: Any = None
    bracket_rungs: Any = None
    stop_once: Any = None
    num_samples: Any = None
    kind: Any = None
    kappa: Any = None
    xi: Any = None
    n_initial_points: Any = None
    gamma: Any = None
    avg_best_idx: Any = None
    shrink_coef: Any = None
    sampler: Any = None
    n_startup_trials: Any = None
    n_ei_candidates: Any = None
    multivariate: Any = None
    constant_liar: Any = None

    @property
    def options(self) -> dict[str, Any]:
        """Return the options that the file sets."""
        return {name: value for name in _ALL_OPTIONS if (value := getattr(self, name)) is not None}

    @staticmethod
    def meant(key: str) -> str:
        """Return what to write instead of a key of other systems; empty if that is not known."""
        return _SEARCHED_AS.get(key, "")
