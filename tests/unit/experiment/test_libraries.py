"""The packages that search algorithms need, and their options."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.experiment.searchers import libraries
from slurm_plugin.records.experiments import Algorithm

ROOT = Path(__file__).parents[3]
DOUBLE = {"x": {"type": "double", "minval": 0, "maxval": 1}}
WORDS = {"act": {"type": "categorical", "vals": ["a", "b"]}, **DOUBLE}


def alone(name: str, options: str, path: str = "/nonexistent") -> list[str]:
    """Return a command that makes the searcher of an algorithm in a Python without packages but those of `path`."""
    code = (
        f"import sys; sys.path[:0] = [{str(ROOT)!r}, {path!r}]\n"
        "from slurm_plugin.errors import MissingError\n"
        "from slurm_plugin.records.experiments import *\n"
        "from slurm_plugin.experiment.searchers import make, needs\n"
        f"search = Search(Metric('loss'), {DOUBLE!r}, (Algorithm({name!r}, {options}),), trials=3)\n"
        "for function in (needs, make):\n"
        "    try: function(search)\n"
        "    except MissingError as error: print(error); assert error.exit_code == 3\n"
    )
    return [sys.executable, "-I", "-S", "-c", code]


@pytest.mark.parametrize(
    ("name", "options", "packages"),
    [
        ("bayes_opt_search", "{}", "'bayesian-optimization>=3.4,<4'"),
        ("anneal_search", "{}", "'hyperopt>=0.3.0,<0.4'"),
        ("optuna", "{'sampler': None}", "'optuna>=5.0,<6'"),
        ("optuna", "{'sampler': 'gp'}", "'optuna>=5.0,<6' 'scipy' 'torch'"),
        ("optuna", "{'sampler': 'cmaes'}", "'optuna>=5.0,<6' 'cmaes>=0.13.1'"),
        ("random", "{}", ""),
    ],
)
def test_a_missing_package(name: str, options: str, packages: str) -> None:
    """A Python without the packages says so with exit code 3 and the command that installs them."""
    said = subprocess.run(alone(name, options), check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    found = [line for line in said if "run:" in line]
    assert found == ([f"  run: {sys.executable} -m pip install {packages}"] * 2 if packages else [])


def test_another_release(tmp_path: Path) -> None:
    """A package that lacks what the searcher imports is missing, too."""
    (tmp_path / "hyperopt.py").touch()
    said = subprocess.run(
        alone("tpe_search", "{}", str(tmp_path)), check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    assert "tpe_search: " in said
    assert "cannot import name 'anneal'" in said
    assert said.endswith(f"  run: {sys.executable} -m pip install 'hyperopt>=0.3.0,<0.4'\n")


@pytest.mark.parametrize(
    ("name", "options", "searched", "problems"),
    [
        ("tpe_search", {"gamma": 1}, DOUBLE, ["gamma: found 1; accepted: a number between 0 and 1"]),
        ("tpe_search", {"n_initial_points": -1}, DOUBLE,
         ["n_initial_points: found -1; accepted: a whole number: the random trials before TPE"]),
        ("bayes_opt_search", {"kind": "lcb", "kappa": "2"}, DOUBLE,
         ["kind: found 'lcb'; accepted: ucb, ei, poi", "kappa: found '2'; accepted: a number of at least 0"]),
        ("bayes_opt_search", {}, WORDS,
         ["space.act: found type categorical with bayes_opt_search; accepted: int, double, log, const; "
          "or search with tpe_search, anneal_search or optuna (tpe, gp)"]),
        ("optuna", {"sampler": "cmaes", "multivariate": True}, WORDS,
         ["multivariate: found it with optuna cmaes; accepted: with the sampler tpe",
          "space.act: found type categorical with optuna cmaes; accepted: int, double, log, const; "
          "or search with tpe_search, anneal_search or optuna (tpe, gp)"]),
        ("anneal_search", {"avg_best_idx": 0.5}, DOUBLE, ["avg_best_idx: found 0.5; accepted: a number of at least 1"]),
        ("anneal_search", {}, {"x": 1},
         ["space: found only constants for anneal_search; accepted: at least one range"]),
        ("optuna", {"sampler": "gp", "n_startup_trials": 5}, WORDS, []),
        ("anneal_search", {"num_samples": 20, "shrink_coef": None}, WORDS, []),
        ("random", {}, {"x": 1}, []),
    ],
)  # fmt: skip
def test_problems(name: str, options: dict[str, Any], searched: dict[str, Any], problems: list[str]) -> None:
    """Options out of their range, and what an algorithm cannot search, are found without its package."""
    found = libraries.check(Algorithm(name, options), searched)
    assert [f"{'.'.join(each.path)}: {each.text}" for each in found] == problems


def test_the_packages_are_the_extras() -> None:
    """pyproject.toml names the same versions."""
    extras = (ROOT / "pyproject.toml").read_text()
    for packages in libraries.PACKAGES.values():
        assert all(f'"{package}"' in extras for package in packages.values() if package not in ("scipy", "torch"))
