"""The plan of adaptive ASHA: its brackets, their rungs, and its options."""

from typing import Any

import pytest

from slurm_plugin.errors import UsageError
from slurm_plugin.experiment.searchers import asha
from slurm_plugin.records.experiments import Algorithm, Metric, Search


def search(trials: int, length: int, concurrent: int = 16) -> Search:
    """Return a search by adaptive_asha."""
    return Search(Metric("loss"), {"x": 1}, (Algorithm("adaptive_asha"),), trials, concurrent, length)


@pytest.mark.parametrize(
    ("trials", "divisor", "counts", "wanted"),
    [
        (20, 3, [3, 2, 1], [12, 5, 3]),
        (50, 3, [4, 3], [35, 15]),
        (50, 4, [3, 2], [37, 13]),
        (100, 4, [4, 3, 2], [70, 22, 8]),
        (1, 4, [2, 1], [1, 1]),  # each bracket has a trial, also where that is more than asked for
    ],
)
def test_trials_of_brackets(trials: int, divisor: float, counts: list[int], wanted: list[int]) -> None:
    """They are divided by the work of each bracket; the first one gets the remainder."""
    assert asha.bracket_trials(trials, divisor, counts) == wanted


@pytest.mark.parametrize(
    ("concurrent", "divisor", "trials", "wanted"),
    [
        (0, 3, [9, 3, 1], [3, 3, 3]),
        (11, 3, [9, 3, 1], [4, 4, 3]),
        (0, 4, [40, 10], [10, 10]),
        (2, 3, [9, 3, 1], [1, 1, 1]),
    ],
)
def test_concurrency_of_brackets(concurrent: int, divisor: float, trials: list[int], wanted: list[int]) -> None:
    """It is divided evenly; each bracket runs at least one trial."""
    assert asha.bracket_concurrency(concurrent, divisor, trials) == wanted


@pytest.mark.parametrize(
    ("count", "divisor", "length", "wanted"),
    [
        (3, 3, 9, (1, 3, 9)),
        (4, 2, 10, (1, 2, 5, 10)),
        (1, 3, 9, (9,)),
        (3, 3, 900, (100, 300, 900)),
        (3, 3, 12, (1, 4, 12)),
        (3, 4, 2, (1, 1, 2)),
    ],
)
def test_rungs(count: int, divisor: float, length: int, wanted: tuple[int, ...]) -> None:
    """Each rung is the next one divided by the divisor, and at least 1."""
    assert asha.rungs(count, divisor, length) == wanted


@pytest.mark.parametrize(
    ("plan", "options", "wanted"),
    [
        ((10, 100, 2), {}, [((25, 100), 7, 1), ((100,), 3, 1)]),
        (
            (10, 1000, 5),
            {"mode": "conservative", "divisor": 3.0},
            [((111, 333, 1000), 7, 2), ((333, 1000), 2, 2), ((1000,), 1, 1)],
        ),
        ((9, 90, 3), {"divisor": 3}, [((10, 30, 90), 6, 2), ((30, 90), 3, 1)]),
        ((12, 9000, 16), {"mode": "aggressive", "divisor": 3}, [((1000, 3000, 9000), 12, 16)]),
        ((1000, 1000, 0), {"mode": "aggressive", "divisor": 10}, [((10, 100, 1000), 1000, 1000)]),
        ((6, 9000, 0), {"bracket_rungs": [1, 3], "divisor": 3}, [((1000, 3000, 9000), 5, 3), ((9000,), 1, 3)]),
        ((1, 100, 1), {"mode": None, "bracket_rungs": None}, [((100,), 1, 1)]),
    ],
)
def test_brackets(plan: tuple[int, int, int], options: dict[str, Any], wanted: list[Any]) -> None:
    """The mode says how many rungs the brackets have; a bracket with many rungs is first."""
    assert list(asha.brackets(search(*plan), options)) == wanted


def test_brackets_without_a_length() -> None:
    """The message says what is needed."""
    with pytest.raises(
        UsageError, match="found 5 trials and the length 0; accepted with adaptive_asha: a number of tr"
    ):
        asha.brackets(search(5, 0), {})


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("mode", "agressive", "'agressive'; accepted: aggressive, standard, conservative; did you mean aggressive?"),
        ("divisor", 1, "1; accepted: a number above 1, up to 1000"),
        ("divisor", True, "True; accepted: a number above 1, up to 1000"),
        ("max_rungs", 0, "0; accepted: a whole number above 0"),
        ("bracket_rungs", [2, 0], "[2, 0]; accepted: a list of whole numbers from 1 to 100"),
        ("bracket_rungs", 3, "3; accepted: a list of whole numbers from 1 to 100"),
        ("stop_once", "yes", "'yes'; accepted: true, false"),
    ],
)
def test_mistakes_in_options(key: str, value: object, text: str) -> None:
    """Each names the option and what it accepts."""
    assert asha.check({key: value}) == [((key,), f"found {text}")]


def test_an_unknown_option() -> None:
    """The nearest one is suggested; null is the default."""
    text = "unknown key; accepted: mode, divisor, max_rungs, bracket_rungs, stop_once; did you mean divisor?"
    assert asha.check({"diviser": 3, "mode": None}) == [(("diviser",), text)]
