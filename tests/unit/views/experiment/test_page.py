"""The page of an experiment as text. tests/consumers/test_experiment_page.py opens it in a browser."""

import html
import math
import re

import pytest

from slurm_plugin.records.experiments import (
    COMPLETED,
    RUNNING,
    Algorithm,
    Experiment,
    Metric,
    Report,
    Search,
    State,
    Trial,
)
from slurm_plugin.views.experiment import charts, figures, page
from slurm_plugin.views.experiment.page import Beside
from slurm_plugin.views.experiment.summary import searched
from slurm_plugin.views.markup import Axis
from tests import experiments
from tests.elements import Elements
from tests.experiments import BEGAN, HOSTILE

NOW = BEGAN + 9e5
SAFE = "#none"  # a link to a log


def written(one: Experiment, state: State, beside: Beside | None = None) -> str:
    """Return a page."""
    return page.page(one, state, NOW, beside or Beside("/home/ada/x", lambda _: SAFE, experiments.RUNGS))


def test_size() -> None:
    """500 trials stay below 500 KB, also with twelve hyperparameters, curves of 1400 points and long hostile texts."""
    one, state = experiments.experiment(trials=500), experiments.state(500)
    assert len(written(one, state).encode()) < 300_000
    space = {f"p{number:02}": {"type": "log", "minval": -5, "maxval": 0} for number in range(12)}
    large = tuple(
        each._replace(values={name: 1 / (place * each.number + 3) for place, name in enumerate(space)},
                      reports=each.reports * 40, why="w" * 130)
        for each in state.trials
    )  # fmt: skip
    beside = Beside(
        "/x", lambda number: f"trials/{number:04}/log", (), {each.number: ["d" * 130] * 6 for each in large}
    )
    text = written(experiments.experiment(trials=500, space=space), state._replace(trials=large), beside)
    assert 400_000 < len(text.encode()) < 500_000


def test_size_of_hostile_text() -> None:
    """Texts are cut, and of very many trials the best and the failed ones are shown."""
    one, state = experiments.experiment(trials=500), experiments.state(500)
    long = tuple(each._replace(why=HOSTILE * 50, task=HOSTILE * 50) for each in state.trials)
    beside = Beside("/x" * 2000, lambda _: SAFE, (), {each.number: [HOSTILE * 50] * 9 for each in long})
    assert len(written(one._replace(name=HOSTILE * 999), state._replace(trials=long), beside).encode()) < 600_000
    many = experiments.state(5000)
    text = written(experiments.experiment(trials=5000), many)
    assert text.count("<tr id=") == page.MOST_ROWS
    assert "leaves out 3000 of 5000 trials" in text
    assert f'id="t{many.best(one.search.metric).number}"' in text  # type: ignore[union-attr]


def test_nothing_is_fetched() -> None:
    """A page has no address but those of the logs, no handler in an attribute, and its policy names its script."""
    found = Elements(written(experiments.experiment(), experiments.state(30)))
    assert set(found.addresses) == {SAFE}
    assert not [name for name in found.names if name.startswith("on")]
    assert not {"img", "link", "iframe", "object", "base", "form"} & set(found.tags)


def test_hostile_text_is_escaped() -> None:
    """In each place where text of a user is shown."""
    space = {HOSTILE: {"type": "categorical", "vals": [HOSTILE]}, "x": {HOSTILE: 1}}
    one = Experiment(
        HOSTILE, Search(Metric(HOSTILE), space, (Algorithm(HOSTILE),), 3, unit=HOSTILE), description=HOSTILE,
        labels=(HOSTILE,), notes=(HOSTILE,),
    )  # fmt: skip
    trial = Trial(
        1, {HOSTILE: HOSTILE, "x": {HOSTILE: 1}}, "failed", task=HOSTILE, why=HOSTILE, reports=(Report(1, 2.0),)
    )
    text = written(
        one, State((trial, trial._replace(number=2)), 3), Beside(HOSTILE, lambda _: SAFE, (), {1: [HOSTILE] * 3})
    )
    tags = Elements(text).tags
    assert (tags.count("script"), tags.count("img")) == (1, 0)
    assert "\x1b" not in text
    assert text.count("&lt;script&gt;alert(1)") > 10


@pytest.mark.parametrize(
    "values",
    [(), (math.inf,), (1.0,), (1.0, 1.0), (math.inf, -math.inf, 0.0), (1e308, -1e308), (1e-300, 1e300), (-1.0, 5.0)],
)
@pytest.mark.parametrize("smaller", [True, False])
def test_any_values(values: tuple[float, ...], smaller: bool) -> None:
    """Charts have whole coordinates within their frame, whatever the values are."""
    one = experiments.experiment()
    one = one._replace(search=one.search._replace(metric=one.search.metric._replace(smaller_is_better=smaller)))
    base = experiments.state(len(values) + 1).trials
    trials = tuple(
        each._replace(state=COMPLETED, reports=(Report(each.number, value, BEGAN + 1),))
        for each, value in zip(base, values, strict=False)
    )
    text = written(one, State((*trials, base[-1]._replace(state=RUNNING, reports=())), 60))
    for path in re.findall(r'class="m [^>]* d="([^"]*)"', text):
        numbers = [int(each) for each in re.findall(r"\d+", path.replace("h0", ""))]
        assert re.fullmatch(r"(M\d+ \d+(h0|L[\d ]+))+", path), path
        assert all(0 <= number <= figures.WIDE for number in numbers)


def test_without_trials_and_hyperparameters() -> None:
    """An experiment that has just been submitted has a page."""
    one = experiments.experiment()
    assert "none yet" in written(one, State(budget=5))
    single = one._replace(search=one.search._replace(space={"lr": 0.1}, algorithms=(Algorithm("single"),)))
    assert "Each hyperparameter" not in written(single, State((Trial(1, {"lr": 0.1}, RUNNING),), 1))


def test_many_hyperparameters() -> None:
    """The charts leave out those beyond twelve and say so; the table has all."""
    space = {f"p{number:02}": {"type": "double", "minval": 0, "maxval": 1} for number in range(15)}
    one = experiments.experiment(space=space)
    text = written(one, State((Trial(1, dict.fromkeys(space, 0.5), RUNNING, reports=(Report(1, 1.0),)),), 3))
    assert "The charts leave out: p12, p13, p14." in text
    assert all(f"<button>{name}</button>" in text for name in space)


def test_several_algorithms() -> None:
    """They share the budget, and the table says which one proposed a trial."""
    one = experiments.experiment(algorithms=(Algorithm("tpe_search"), Algorithm("anneal_search")))
    trials = tuple(each._replace(algorithm=each.number % 2) for each in experiments.state(6).trials)
    text = written(one, State(trials, 6))
    assert (text.count("<td>tpe_search"), text.count("<td>anneal_search")) == (3, 3)
    assert "<button>Algorithm</button>" not in written(experiments.experiment(), State(trials, 6))


def test_subpaths_name_their_trials() -> None:
    """The script of the page finds a trial by its place in data-n: each trial is one subpath."""
    text = written(experiments.experiment(), experiments.state(200))
    for names, path in re.findall(r'data-n="([^"]*)" d="([^"]*)"', text):
        assert len(names.split()) == path.count("M")


@pytest.mark.parametrize(
    ("axis", "ticks"),
    [
        (Axis(0, 10, 0, 100), [(0, "0"), (20, "2"), (40, "4"), (60, "6"), (80, "8"), (100, "10")]),
        (Axis(1e-5, 1e-1, 0, 100, log=True), [(0, "1e-5"), (25, "1e-4"), (50, "1e-3"), (75, "0.01"), (100, "0.1")]),
        (Axis(2, 4, 0, 100, log=True), [(0, "2"), (32, "2.5"), (58, "3"), (81, "3.5"), (100, "4")]),
        (Axis(3, 3, 0, 100), [(50, "3")]),
        (Axis(-0.5, 1.5, 0, 100, choices=("sgd", "adam")), [(25, "sgd"), (75, "adam")]),
        (Axis(1e10, 1e14, 0, 100, log=True), [(0, "1e10"), (25, "1e11"), (50, "1e12"), (75, "1e13"), (100, "1e14")]),
    ],
)
def test_ticks(axis: Axis, ticks: list[tuple[int, str]]) -> None:
    """Round numbers, powers of ten, or the choices."""
    assert axis.ticks() == ticks


def test_values_that_are_far_worse_are_at_the_edge() -> None:
    """They do not press the others into one line; the best value is always on the axis."""
    values = [0.1 + place / 100 for place in range(50)]
    axis, beyond = charts.value_axis([*values, 1e9, math.inf, -3.0], 0, 100, smaller_is_better=True)
    assert (axis.low, axis.high, beyond) == (-3.0, values[-1], 2)
    axis, beyond = charts.value_axis([*values, 1e9, -math.inf, -3.0], 0, 100, smaller_is_better=False)
    assert (axis.low, axis.high, beyond) == (values[0], 1e9, 2)


def test_shades() -> None:
    """The best fifth is the darkest; trials without a finite value have their own."""
    values: list[tuple[int, float | None]] = [(number, float(number)) for number in range(1, 11)]
    values += [(11, None), (12, math.inf)]
    found = charts.shades(values, smaller_is_better=True)
    assert [found[number] for number in range(1, 13)] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert charts.shades(values, smaller_is_better=False)[10] == 0


def test_dimensions() -> None:
    """Logarithmic ranges by their powers, categories as they are shown, constants left out."""
    found = {each.name: each for each in searched(experiments.SPACE)}
    lr = found["optimizer.lr"]
    assert (lr.low, lr.high, lr.log) == (1e-5, 0.1, True)
    assert found["batch_size"].choices == ("16", "32", "64", "128")
    assert "global_seed" not in found
    values = {"optimizer": {"lr": 0.01, "name": "adam"}, "layers": True, "batch_size": 64}
    assert [found[name].number(values) for name in ("optimizer.lr", "optimizer.name", "layers", "batch_size")] == [
        0.01, 1.0, None, 2.0,
    ]  # fmt: skip
    assert html.escape(HOSTILE)  # the data of these tests is hostile indeed
