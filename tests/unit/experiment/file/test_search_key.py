"""Mirrors slurm_plugin/experiment/file/loader.py: a job spec with `search` as an experiment."""

from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.errors import UsageError
from slurm_plugin.experiment import searchers
from slurm_plugin.experiment.file import loader
from slurm_plugin.experiment.searchers import asha, libraries
from slurm_plugin.records.experiments import Algorithm, Metric, Search
from slurm_plugin.spec import search_key
from slurm_plugin.spec.submit_config import SubmitConfig
from tests.refusals import refusal_of

SPEC = "name: a\nmode: single\ncommand: ./a --lr {lr} --opt {o.name} ${HOME} {{lr}}\nsearch:\n"
SEARCH = {
    "algorithm": "tpe_search",
    "metric": "{name: loss}",
    "space": "{lr: {type: log, minval: -4, maxval: -1}, o: {name: {type: categorical, vals: [sgd, 1]}}, n: 1_0}",
    "trials": "20",
}
SPACE = {
    "lr": {"type": "log", "minval": -4, "maxval": -1},
    "o": {"name": {"type": "categorical", "vals": ["sgd", 1]}},
    "n": 10,
}


def path(where: Path, more: str = "", spec: str = SPEC, **search: str) -> Path:
    """Write a spec; an empty value removes a key of the search."""
    found = where / "job.yaml"
    keys = {key.rstrip("_"): value for key, value in {**SEARCH, **search}.items() if value}
    found.write_text(spec + "".join(f"  {key}: {value}\n" for key, value in keys.items()) + more)
    return found


def test_it_becomes_an_experiment(tmp_path: Path) -> None:
    """And the job is the spec without it."""
    more = "retries: 2\ngrace: 5m\nextends: big\n"
    site = SubmitConfig(presets={"big": {"accelerators": {"gpu": "8"}}})
    given = {"concurrent": "4", "pass_": "arguments", "seed": "7", "directory": "runs", "gamma": "0.5"}
    found = loader.load(path(tmp_path, more, metric="{name: acc, goal: maximize, regex: 'a=(.*)', use: last}", **given),
                       site)  # fmt: skip
    metric = Metric("acc", smaller_is_better=False, regex="a=(.*)", use="last")
    options = (Algorithm("tpe_search", {"n_initial_points": 20, "gamma": 0.5}),)
    assert found.experiment.search == Search(metric, SPACE, options, trials=20, concurrent=4, unit="step", seed=7)
    assert found.experiment[:1] + found.experiment[2:6] == ("a", "arguments", 2, 300.0, None)
    assert (found.directory, found.parent) == ("runs", "")
    assert found.job == {
        "name": "a",
        "mode": "single",
        "command": "./a --lr {lr} --opt {o.name} ${HOME} {{lr}}",
        "retries": "2",
        "grace": "5m",
        "extends": "big",
    }


ASHA = {"algorithm": "adaptive_asha", "max_length": "81", "unit": "epochs"}
SEARCHES: list[tuple[dict[str, str], dict[str, Any]]] = [
    ({}, {"trials": 20, "concurrent": 16, "max_length": 0, "unit": "step"}),
    ({"trials": "", "num_samples": "9"}, {"trials": 9}),
    ({"algorithm": "grid", "trials": "", "space": "{lr: 1, o: {name: 2}}"}, {"trials": 0}),
    ({"algorithm": "single", "trials": "", "space": "{lr: 1, o: {name: 2}}"}, {"trials": 0, "concurrent": 1}),
    (ASHA, {"max_length": 81, "unit": "epochs", "algorithms": (Algorithm("adaptive_asha", asha.OPTIONS),)}),
    (
        {**ASHA, "divisor": "3", "bracket_rungs": "[3, 2]", "mode": "aggressive"},
        {"algorithms": (Algorithm("adaptive_asha", {**asha.OPTIONS, "divisor": 3, "bracket_rungs": [3, 2],
                                                    "mode": "aggressive"}),)},
    ),
    (
        {"algorithm": "[bayes_opt_search, tpe_search, anneal_search]", "kappa": "1e-1", "gamma": "0.3",
         "space": "{lr: {type: log, minval: -4, maxval: -1}, o: {name: 1}}"},
        {"algorithms": (Algorithm("bayes_opt_search", {"kind": "ucb", "kappa": 0.1, "xi": 0.0}),
                        Algorithm("tpe_search", {"n_initial_points": 20, "gamma": 0.3}),
                        Algorithm("anneal_search", {"avg_best_idx": 2.0, "shrink_coef": 0.1})), "trials": 20},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("given", "wanted"), SEARCHES)
def test_searches(given: dict[str, str], wanted: dict[str, Any], tmp_path: Path) -> None:
    """Options stand beside `algorithm`; each algorithm gets its own."""
    search = loader.load(path(tmp_path, **given)).experiment.search
    assert {key: getattr(search, key) for key in wanted} == wanted


ALGORITHMS = ", ".join(search_key.OPTIONS)
REGEX = r"accepted: a regular expression with a group, such as loss=(\S+)"
REFUSED: dict[str, tuple[dict[str, str], str]] = {
    "algorithm": ({"algorithm": "tpe"}, f"line 5: search.algorithm: found 'tpe'; accepted: one or several of "
                                        f"{ALGORITHMS}; did you mean tpe_search?"),
    "twice": ({"algorithm": "[random, random]"}, "line 5: search.algorithm: found random, random; accepted: each"
                                                 " algorithm once, at least one"),
    "beside": ({"algorithm": "[grid, random]", "space": "{lr: 1, o: {name: 1}}", "trials": ""},
               "line 5: search.algorithm: found grid beside others; accepted: it alone, or several of random,"
               " bayes_opt_search, tpe_search, anneal_search, optuna"),
    "option": ({"kappa": "2"}, "line 9: search.kappa: found it with tpe_search; it is an option of bayes_opt_search"),
    "value": ({"gamma": "2"}, "line 9: search.gamma: found 2; accepted: a number between 0 and 1"),
    "float only": ({"algorithm": "bayes_opt_search"},
                   "line 7: search.space.o.name: found type categorical with bayes_opt_search; accepted: int, double,"
                   " log, const; or search with tpe_search, anneal_search or optuna (tpe, gp)"),
    "unknown": ({"gama": "2"}, "line 9: search.gama: unknown key; accepted: algorithm, metric, space, trials,"
                               " concurrent, max_length, unit, pass, seed, directory, mode, divisor, max_rungs,"
                               " bracket_rungs, stop_once, num_samples, kind, kappa, xi, n_initial_points, gamma,"
                               " avg_best_idx, shrink_coef, sampler, n_startup_trials, n_ei_candidates, multivariate,"
                               " constant_liar; did you mean gamma?"),
    "of a file": ({"max_trials": "2"}, "line 9: search.max_trials: unknown key; here it is trials"),
    "asha": ({**ASHA, "mode": "fast"}, "line 11: search.mode: found 'fast'; accepted: aggressive, standard,"
                                       " conservative"),
    "no length": ({"algorithm": "adaptive_asha"}, "line 4: search.max_length: missing; accepted with adaptive_asha: the"
                                                  " length of a whole trial, in `unit`, as the program reports it"),
    "no trials": ({"trials": ""}, "line 4: search.trials: missing; accepted with tpe_search: a whole number above 0"),
    "two budgets": ({"num_samples": "3"}, "line 9: search.num_samples: found 3, and `trials: 20`; keep one of the two"),
    "samples": ({"trials": "", "num_samples": "x"}, "line 8: search.num_samples: found 'x'; accepted: a whole number"
                                                    " above 0"),
    "trials of grid": ({"algorithm": "grid", "space": "{lr: 1, o: {name: 1}}"},
                       "line 8: search.trials: found it with grid, which makes one trial for each point of its grid;"
                       " leave it out"),
    "group": ({"metric": "{name: l, regex: loss=.*}"}, f"line 6: search.metric.regex: found 'loss=.*' without a group;"
                                                       f" {REGEX}"),
    "regex": ({"metric": "{name: l, regex: 'loss=('}"}, "line 6: search.metric.regex: found 'loss=(': missing ),"
                                                        f" unterminated subpattern at position 5; {REGEX}"),
    "goal": ({"metric": "{name: l, goal: min}"}, "line 6: search.metric.goal: found 'min'; accepted: minimize,"
                                                 " maximize; did you mean minimize?"),
    "space": ({"space": "{lr: {type: log, minval: 1, maxval: 1}, o: {name: 1}}"},
              "line 7: search.space.lr.maxval: found 1; accepted: a number above `minval`, which is 1"),
    "name": ({"space": "{lrr: {type: int, minval: 1, maxval: 2}, o: {name: 1}}"},
             "line 3: command: found {lr}; accepted: lrr, o.name; did you mean lrr?; {{lr}} is the text {lr}"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, tmp_path: Path) -> None:
    """With line, place and nearest word; the next command is that of experiments."""
    given, wanted = REFUSED[name]
    file = path(tmp_path, **given)
    said = refusal_of(UsageError, loader.load, file).splitlines()
    assert said[:1] + said[2:] == [
        f"{file}: 1 problem, nothing was submitted",
        f"  correct the file, then run: slurm-plugin experiment preview {file}",
    ]
    assert said[1].strip() == wanted


NOT_WITH = {
    "tasks: [./a, ./b]": (
        "tasks: found it with `search`: a trial runs one command; leave it out, and search with `grid` over a"
        " categorical hyperparameter"
    ),
    "groups: [{nodes: 1}, {nodes: 2}]": ("groups: found it with `search`: a trial has nodes of one kind; leave it out"),
    "array: 0-3": "array: found it with `search`: every trial is a task of an array; leave it out, and give `trials`",
    "any_of: [{nodes: 1}, {partition: a}]": (
        "any_of: found it with `search`: all trials run on nodes of one kind; leave it out, or submit one experiment"
        " for each"
    ),
}


@pytest.mark.parametrize("more", NOT_WITH)
def test_not_with_other_kinds_of_many_jobs(more: str, tmp_path: Path) -> None:
    """The message says what to do instead."""
    spec = SPEC.replace("mode: single", "mode: pytorch")
    if more.startswith("tasks"):
        spec = "\n".join(["name: a", "mode: single", "", "search:", ""])
    first, *found, last = refusal_of(UsageError, loader.load, path(tmp_path, f"{more}\n", spec)).splitlines()
    assert [line.strip() for line in found] == [f"line 9: {NOT_WITH[more]}"], (first, last)


def test_all_problems_at_once(tmp_path: Path) -> None:
    """Those of the spec, of the space and of the algorithm."""
    file = path(tmp_path, "time: soon\n", kappa="2", space="{lr: {type: log}, o: {name: 1}}")
    said = refusal_of(UsageError, loader.load, file)
    assert said.splitlines()[0] == f"{file}: 4 problems, nothing was submitted"


def test_options_are_those_of_the_searchers() -> None:
    """The names in the spec are the names in the code."""
    own = {"single": (), "random": (), "grid": (), "adaptive_asha": asha.OPTIONS}
    names = {name: set(options) for name, options in {**own, **libraries.OPTIONS}.items()}
    assert {name: {*options} - {"num_samples"} for name, options in search_key.OPTIONS.items()} == names
    assert set(searchers.ALGORITHMS) == set(names)
