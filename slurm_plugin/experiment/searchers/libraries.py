"""The search algorithms of other packages: their options, what they can search, and the packages that they need.

Standard library only: a file is checked where the packages may be absent. The modules with the searchers import them.
"""

import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from slurm_plugin.errors import MissingError
from slurm_plugin.records import search_space
from slurm_plugin.records.experiments import Algorithm, Search
from slurm_plugin.records.search_space import Problem


class Option(NamedTuple):
    """An option of an algorithm."""

    default: Any
    is_good: Callable[[Any], bool]
    accepted: str


def _whole(least: int) -> Callable[[Any], bool]:
    return lambda value: search_space.is_number(value, whole=True) and value >= least


def _is_share(value: Any) -> bool:
    return search_space.is_number(value) and 0 < value < 1


def _is_positive(value: Any) -> bool:
    return search_space.is_number(value) and value >= 0


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _one_of(*words: str) -> Option:
    return Option(words[0], lambda value: value in words, ", ".join(words))


POSITIVE: Final = "a number of at least 0"
# The defaults are Ray Tune's of 2020, and for optuna those of Optuna (None).
OPTIONS: Final[Mapping[str, Mapping[str, Option]]] = {
    "bayes_opt_search": {
        "kind": _one_of("ucb", "ei", "poi"),
        "kappa": Option(2.5, _is_positive, POSITIVE),
        "xi": Option(0.0, _is_positive, POSITIVE),
    },
    "tpe_search": {
        "n_initial_points": Option(20, _whole(0), "a whole number: the random trials before TPE"),
        "gamma": Option(0.25, _is_share, "a number between 0 and 1"),
    },
    "anneal_search": {
        "avg_best_idx": Option(
            2.0, lambda value: search_space.is_number(value) and value >= 1, "a number of at least 1"
        ),
        "shrink_coef": Option(0.1, _is_positive, POSITIVE),
    },
    "optuna": {
        "sampler": _one_of("tpe", "gp", "cmaes"),
        "n_startup_trials": Option(None, _whole(0), "a whole number: the random trials before the sampler"),
        "n_ei_candidates": Option(None, _whole(1), "a whole number above 0"),
        "multivariate": Option(None, _is_flag, "true, false"),
        "constant_liar": Option(None, _is_flag, "true, false"),
    },
}
OF_TPE: Final = ("n_ei_candidates", "multivariate", "constant_liar")  # options of optuna's sampler tpe alone
# Algorithm, and with optuna its sampler -> module to import, and what pip calls it.
BAYES: Final = {"bayes_opt": "bayesian-optimization>=3.4,<4"}
HYPEROPT: Final = {"hyperopt": "hyperopt>=0.3.0,<0.4"}
OPTUNA: Final = {"optuna": "optuna>=5.0,<6"}
PACKAGES: Final[Mapping[str, Mapping[str, str]]] = {
    "bayes_opt_search": BAYES,
    "tpe_search": HYPEROPT,
    "anneal_search": HYPEROPT,
    "optuna tpe": OPTUNA,
    "optuna gp": {**OPTUNA, "scipy": "scipy", "torch": "torch"},
    "optuna cmaes": {**OPTUNA, "cmaes": "cmaes>=0.13.1"},
}
ONLY_NUMBERS: Final = ("bayes_opt_search", "optuna cmaes")


def all_options(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return all options of an algorithm but `num_samples`, the budget; a null in the file is the default."""
    found = {key: options.get(key) for key in OPTIONS[name]}
    values = {key: OPTIONS[name][key].default if value is None else value for key, value in found.items()}
    # The libraries refuse 24.0 for a count.
    return {key: int(value) if key.startswith("n_") and value is not None else value for key, value in values.items()}


def check(algorithm: Algorithm, searched: search_space.Space) -> Iterator[Problem]:
    """Yield what is wrong with an algorithm of another package, and with what it searches; the space has no problem.

    Paths are those below `search`.
    """
    options = OPTIONS.get(algorithm.name, {})
    wrong = {
        key: f"{search_space.found(value)}; accepted: {options[key].accepted}"
        for key, value in algorithm.options.items()
        if key in options and value is not None and not options[key].is_good(value)
    }
    yield from (Problem((key,), text) for key, text in wrong.items())
    if not options or wrong:
        return
    kind = _kind(algorithm)
    if kind in ("optuna gp", "optuna cmaes"):
        for key in (key for key in OF_TPE if algorithm.options.get(key) is not None):
            yield Problem((key,), f"found it with {kind}; accepted: with the sampler tpe")
    entries = [(path, entry) for path, entry in search_space.parameters(searched) if entry["type"] != "const"]
    if not entries:
        yield Problem(("space",), f"found only constants for {algorithm.name}; accepted: at least one range")
    for path, entry in entries:
        if entry["type"] == "categorical" and kind in ONLY_NUMBERS:
            text = f"found type categorical with {kind}; accepted: int, double, log, const"
            yield Problem(("space", *path), f"{text}; or search with tpe_search, anneal_search or optuna (tpe, gp)")


def any_in(search: Search) -> bool:
    """Return whether an algorithm of the search is another package's."""
    return any(each.name in OPTIONS for each in search.algorithms)


def needs(search: Search) -> None:
    """Raise MissingError, with the command that installs it, if a package of an algorithm is not installed."""
    for each in search.algorithms:
        packages = PACKAGES.get(_kind(each), {})
        if missing := [package for module, package in packages.items() if not importlib.util.find_spec(module)]:
            raise _missing(each, f"found no {' '.join(missing)} in {sys.executable}", missing)


def unusable(algorithm: Algorithm, error: ImportError) -> MissingError:
    """Return the error for a package that is installed, and is another release or lacks another package."""
    return _missing(algorithm, f"{sys.executable}: {error}", list(PACKAGES.get(_kind(algorithm), {}).values()))


def _missing(algorithm: Algorithm, what: str, packages: Sequence[str]) -> MissingError:
    words = " ".join(f"'{package}'" for package in packages)
    return MissingError(f"{_kind(algorithm)}: {what}\n  run: {sys.executable} -m pip install {words}")


def _kind(algorithm: Algorithm) -> str:
    """Return the name of an algorithm, and for optuna its sampler."""
    if algorithm.name != "optuna":
        return algorithm.name
    return f"optuna {all_options('optuna', algorithm.options)['sampler']}"
