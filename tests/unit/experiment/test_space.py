"""The space of hyperparameters: its mistakes, its random values, its grid."""

import math
import random
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.records import search_space

NESTED = {
    "global_batch_size": 64,
    "optimizer": {
        "name": {"type": "categorical", "vals": ["SGD", "Adam"]},
        "rate": {"type": "log", "minval": -5, "maxval": -1},
    },
    "layers": {"type": "int", "minval": 1, "maxval": 3},
    "dropout": {"type": "double", "minval": 0.2, "maxval": 0.5},
    "sizes": [1, 2],
    "fixed": {"type": "const", "val": {"a": 1}},
    "empty": {},
}


def grid(entries: search_space.Space) -> list[search_space.Values]:
    """Return all points of a grid."""
    return [search_space.grid_point(entries, index) for index in range(search_space.grid_size(entries))]


def rng(seed: int) -> random.Random:
    """Return a source of random numbers."""
    return random.Random(seed)  # noqa: S311 # no secret


def whole(low: int, high: int, count: int) -> Mapping[str, Any]:
    """Return an int hyperparameter of a grid."""
    return {"type": "int", "minval": low, "maxval": high, "count": count}


@pytest.mark.parametrize(
    ("entry", "place", "text"),
    [
        (
            {"type": "int", "minval": 3, "maxval": 3},
            "maxval",
            "found 3; accepted: a whole number above `minval`, which is 3",
        ),
        (
            {"type": "double", "minval": 2, "maxval": 1.5},
            "maxval",
            "found 1.5; accepted: a number above `minval`, which is 2",
        ),
        ({"type": "int", "minval": 1.5, "maxval": 3}, "minval", "found 1.5; accepted: a whole number"),
        ({"type": "int", "minval": True, "maxval": 3}, "minval", "found True; accepted: a whole number"),
        ({"type": "double", "maxval": math.nan, "minval": 0}, "maxval", "found nan; accepted: a number"),
        ({"type": "double", "maxval": 1}, "minval", "found nothing; accepted: a number"),
        ({"type": "double", "minval": "1\x1b[2J", "maxval": 1}, "minval", "found '1\\x1b[2J'; accepted: a number"),
        (
            {"type": "log", "minval": -1, "maxval": 1, "base": 0},
            "base",
            "found 0; accepted: a number above 0 other than 1",
        ),
        (
            {"type": "log", "minval": -1, "maxval": 1, "base": 1},
            "base",
            "found 1; accepted: a number above 0 other than 1",
        ),
        (
            {"type": "log", "minval": 1, "maxval": 400},
            "",
            "found the exponents 1 to 400 of base 10.0; accepted: powers that are numbers above 0 and below 1e308",
        ),
        ({"type": "categorical", "vals": []}, "vals", "found []; accepted: a list of at least one value"),
        ({"type": "categorical"}, "vals", "found nothing; accepted: a list of at least one value"),
        ({"type": "const"}, "val", "found nothing; accepted: the value of the constant"),
        ({"type": "const", "vals": 1, "val": 1}, "vals", "unknown key; accepted: type, val; did you mean val?"),
        (
            {"type": "doubel", "minval": 1},
            "type",
            "found 'doubel'; accepted: int, double, log, categorical, const; did you mean double?",
        ),
        (
            {"type": "adam"},
            "type",
            "found 'adam'; accepted: int, double, log, categorical, const; "
            "a constant named `type` is written `type: {type: const, val: …}`",
        ),
        ({"type": "int", "minval": 0, "maxval": 3, "count": 0}, "count", "found 0; accepted: a whole number above 0"),
    ],
)
def test_mistakes(entry: Mapping[str, Any], place: str, text: str) -> None:
    """Each names its place, what was found and what is accepted."""
    path = ("a", "x", *([place] if place else []))
    assert search_space.check({"a": {"x": entry}}) == [(path, text)]


@pytest.mark.parametrize(
    ("entries", "path", "said"),
    [
        ({"a": {"b": 1}, "a.b": 7}, ("a.b",), "found the name a.b a second time; a dot joins"),
        ({"a": {"type": "const", "val": {"b": 1}}, "a.b": 7}, ("a.b",), "found the name a.b a second time"),
        ({"a": {"b": 1}, "a_b": 7}, ("a_b",), "found a_b, whose variable SLURM_PLUGIN_HP_A_B is also that of a.b;"),
        ({"lr": whole(1, 2, 2), "LR": 1}, ("lr",), "found lr, whose variable SLURM_PLUGIN_HP_LR is also that of LR;"),
        ({"学习率": 1, "批大小": 2}, ("批大小",), "found 批大小, whose variable SLURM_PLUGIN_HP____ is also that of"),
    ],
)
def test_names_that_collide(entries: Mapping[str, Any], path: tuple[str, ...], said: str) -> None:
    """Two hyperparameters never share a dotted name, or a variable."""
    ((place, text),) = search_space.check(entries)
    assert place == path
    assert text.startswith(said)
    assert text.endswith("; rename one of the two")
    assert search_space.check({"lr": 1, "LR": [1, 2]}) == []  # a list has no variable


def test_mistakes_with_an_algorithm() -> None:
    """`grid` needs counts and a size that can be listed; `single` needs constants."""
    assert search_space.check(NESTED) == []
    assert [path for path, _ in search_space.check(NESTED, ("grid",))] == [
        ("dropout", "count"),
        ("layers", "count"),
        ("optimizer", "rate", "count"),
    ]
    assert [path for path, _ in search_space.check(NESTED, ("single",))] == [
        ("dropout",),
        ("layers",),
        ("optimizer", "name"),
        ("optimizer", "rate"),
    ]
    large = {name: whole(0, 10**9, 10**5) for name in "ab"}
    text = "found a grid of 10000000000 points; accepted: at most 100000; reduce a `count`"
    assert search_space.check(large, ("grid",)) == [((), text)]
    assert search_space.check([1]) == [((), "found [1]; accepted: a mapping of names to values or ranges")]


@given(st.integers(), st.integers(0, 50))
def test_random_values(seed: int, width: int) -> None:
    """They lie in the ranges, both ends included; the exponents of `log` are the range. The same seed repeats them."""
    entries = {**NESTED, "layers": {"type": "int", "minval": -2, "maxval": width}}
    values = search_space.sample(entries, rng(seed))
    assert values == search_space.sample(dict(reversed(entries.items())), rng(seed))
    assert set(values) == set(NESTED)
    assert -2 <= values["layers"] <= width and isinstance(values["layers"], int)
    assert 0.2 <= values["dropout"] <= 0.5
    assert 1e-5 <= values["optimizer"]["rate"] <= 0.1
    assert values["optimizer"]["name"] in ("SGD", "Adam")
    assert (values["sizes"], values["fixed"], values["empty"]) == ([1, 2], {"a": 1}, {})


def test_both_ends_of_an_int_are_drawn() -> None:
    """A range of two integers gives both."""
    drawn = {
        search_space.sample({"x": {"type": "int", "minval": 4, "maxval": 5}}, rng(seed))["x"] for seed in range(50)
    }
    assert drawn == {4, 5}


@pytest.mark.parametrize(
    ("entry", "values"),
    [
        (whole(-4, -2, 3), [-4, -3, -2]),
        (whole(0, 4, 5), [0, 1, 2, 3, 4]),
        (whole(0, 4, 50), [0, 1, 2, 3, 4]),
        (whole(0, 20, 3), [0, 10, 20]),
        (whole(0, 3, 1), [2]),
        (whole(-3, 0, 1), [-2]),
        (whole(0, 5, 3), [0, 3, 5]),
        (whole(-5, 0, 3), [-5, -3, 0]),
        ({"type": "double", "minval": 13, "maxval": 17, "count": 2}, [13, 17]),
        ({"type": "double", "minval": 0, "maxval": 1, "count": 1}, [0.5]),
        ({"type": "log", "minval": 1, "maxval": 2, "count": 2}, [10, 100]),
        ({"type": "log", "minval": 1, "maxval": 3, "count": 1, "base": 2}, [4]),
        ({"type": "categorical", "vals": ["a", None]}, ["a", None]),
        ({"type": "const", "val": 3}, [3]),
        ([1, 2], [[1, 2]]),
        ({}, [{}]),
    ],
)
def test_values_of_a_grid(entry: Any, values: list[Any]) -> None:
    """A count is cut to the number of integers; a single value is the middle, rounded half away from zero."""
    assert search_space.axes({"x": entry}) == {"x": values}
    assert grid({"x": entry}) == [{"x": each} for each in values]


def test_a_grid_is_the_product_in_the_order_of_the_names() -> None:
    """The last name changes fastest, also below other names; an empty mapping does not vanish."""
    wanted = [(first, second) for first in (0, 10, 20) for second in (0, 5, 10)]
    assert grid({"2": whole(0, 10, 3), "1": whole(0, 20, 3)}) == [{"1": one, "2": two} for one, two in wanted]
    nested = {"2": {"3": whole(0, 10, 3), "4": {}}, "1": whole(0, 20, 3)}
    assert grid(nested) == [{"1": one, "2": {"3": two, "4": {}}} for one, two in wanted]
    names = {
        "constant": 2,
        "a": {"b": {"c1": {"type": "categorical", "vals": [3, 5]}, "c2": whole(7, 11, 2)}},
        "f": {"type": "double", "minval": 13, "maxval": 17, "count": 2},
        "l": {"type": "log", "minval": 1, "maxval": 2, "base": 10, "count": 2},
    }
    points = grid(names)
    assert points == [
        {"a": {"b": {"c1": c1, "c2": c2}}, "constant": 2, "f": f, "l": log}
        for c1 in (3, 5)
        for c2 in (7, 11)
        for f in (13, 17)
        for log in (10, 100)
    ]
    assert search_space.grid_size(names) == 16


@pytest.mark.parametrize("counts", [(1,), (4,), (1, 4), (3, 4), (2, 3, 4), (2, 2, 3, 3, 4, 5)])
def test_the_size_of_a_grid(counts: tuple[int, ...]) -> None:
    """It is the product of the counts, and no point is twice in the grid."""
    entries = {
        str(index): {"type": "double", "minval": -1, "maxval": 1, "count": count} for index, count in enumerate(counts)
    }
    points = {tuple(search_space.flat(each).items()) for each in grid(entries)}
    assert len(points) == search_space.grid_size(entries) == math.prod(counts)


def test_names_of_nested_values() -> None:
    """They are joined by dots."""
    values = search_space.sample(NESTED, rng(0))
    assert set(search_space.flat(values)) == {
        "global_batch_size",
        "optimizer.name",
        "optimizer.rate",
        "layers",
        "dropout",
        "sizes",
        "fixed.a",
    }
