"""The space of hyperparameters: check it, draw values from it, and list its grid.

The types are those of Determined: int, double, log, categorical and const. A bare scalar or list is a constant. A
mapping without `type` holds more hyperparameters. Names are taken in sorted order, so the order in the file changes
nothing. Standard library only: the tasks run on nodes.
"""

import math
import random
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, NamedTuple

from slurm_plugin.errors import printable
from slurm_plugin.records.nearest import suggestion

Path = tuple[str, ...]
Space = Mapping[str, Any]
Values = dict[str, Any]

BASE: Final = 10.0  # of a log hyperparameter without `base`
MOST_POINTS: Final = 100_000  # of a grid
HP: Final = "SLURM_PLUGIN_HP_"  # how the variable of a hyperparameter begins
_ODD: Final = re.compile("[^A-Z0-9_]")
_RANGE: Final = ("minval", "maxval", "count")
_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "int": _RANGE,
    "double": _RANGE,
    "log": (*_RANGE, "base"),
    "categorical": ("vals",),
    "const": ("val",),
}
_LONGEST: Final = 60  # characters of a value in a message


class Problem(NamedTuple):
    """One mistake. `path` is its place below the hyperparameters; empty for all of them together."""

    path: Path
    text: str


def check(space: object, algorithms: Collection[str] = ()) -> list[Problem]:
    """Return the problems of a space that the named algorithms search."""
    if not isinstance(space, Mapping):
        return [Problem((), f"{found(space)}; accepted: a mapping of names to values or ranges")]
    problems = [each for path, entry in parameters(space) for each in _problems(path, entry, algorithms)]
    problems += _collisions(space)
    if not problems and "grid" in algorithms and (size := grid_size(space)) > MOST_POINTS:
        text = f"found a grid of {size} points; accepted: at most {MOST_POINTS}; reduce a `count`"
        problems.append(Problem((), text))
    return problems


def sample(space: Space, rng: random.Random) -> Values:
    """Return random values, nested as the space is."""
    return _nested([(path, _draw(entry, rng)) for path, entry in parameters(space)])


def grid_size(space: Space) -> int:
    """Return the number of points of the grid, without listing them."""
    return math.prod(_points(entry) for _, entry in parameters(space))


def grid_point(space: Space, index: int) -> Values:
    """Return one point of the grid; `index` counts from 0. The last name in sorted order changes fastest."""
    places: list[tuple[Path, Any]] = []
    for path, entry in reversed(list(parameters(space))):
        index, place = divmod(index, _points(entry))
        places.append((path, _point(entry, place)))
    return _nested(reversed(places))


def axes(space: Space) -> dict[str, list[Any]]:
    """Return the values of each hyperparameter in the grid, by its dotted name."""
    return {
        ".".join(path): [_point(entry, place) for place in range(_points(entry))] for path, entry in parameters(space)
    }


def flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested values by their dotted names. A list is one value."""
    named: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            named |= {f"{name}.{inner}": each for inner, each in flat(value).items()}
        else:
            named[str(name)] = value
    return named


def variable(name: str) -> str:
    """Return the variable in which a trial has the hyperparameter with this dotted name."""
    return HP + _ODD.sub("_", name.upper())


def parameters(space: Space, above: Path = ()) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Yield the place and definition of each hyperparameter, in the order of the names.

    A bare value is yielded as a const, and so is an empty mapping: it must not vanish from the values.
    """
    for name, entry in sorted(((str(name), entry) for name, entry in space.items()), key=lambda pair: pair[0]):
        path = (*above, name)
        if not isinstance(entry, Mapping) or not entry:
            yield path, {"type": "const", "val": entry}
        elif isinstance(entry.get("type", {}), Mapping):  # a hyperparameter may be named `type`
            yield from parameters(entry, path)
        else:
            yield path, entry


def _draw(entry: Mapping[str, Any], rng: random.Random) -> Any:
    """Return a random value of one hyperparameter."""
    match entry["type"]:
        case "const":
            return entry["val"]
        case "categorical":
            return entry["vals"][rng.randrange(len(entry["vals"]))]
        case "int":
            return rng.randint(int(entry["minval"]), int(entry["maxval"]))
    value = rng.uniform(entry["minval"], entry["maxval"])
    return _base(entry) ** value if entry["type"] == "log" else value


def _points(entry: Mapping[str, Any]) -> int:
    """Return the number of values of one hyperparameter in the grid."""
    match entry["type"]:
        case "const":
            return 1
        case "categorical":
            return len(entry["vals"])
        case "int":
            return min(int(entry["count"]), int(entry["maxval"]) - int(entry["minval"]) + 1)
    return int(entry["count"])


def _point(entry: Mapping[str, Any], place: int) -> Any:
    """Return a value of one hyperparameter in the grid. A single value of a range is its middle."""
    if entry["type"] in ("const", "categorical"):
        return entry["val"] if entry["type"] == "const" else entry["vals"][place]
    low, high, count = entry["minval"], entry["maxval"], _points(entry)
    value = (low + high) / 2 if count == 1 else low + place * (high - low) / (count - 1)
    if entry["type"] == "int":
        return int(math.copysign(math.floor(abs(value) + 0.5), value))  # half away from zero
    return _base(entry) ** value if entry["type"] == "log" else value


def _base(entry: Mapping[str, Any]) -> float:
    """Return the base of a log hyperparameter."""
    return float(entry.get("base", BASE))


def _nested(pairs: Any) -> Values:
    """Return values nested by their places."""
    values: Values = {}
    for path, value in pairs:
        place = values
        for name in path[:-1]:
            place = place.setdefault(name, {})
        place[path[-1]] = value
    return values


def _collisions(space: Space) -> Iterator[Problem]:
    """Yield the hyperparameters that have the dotted name or the variable of one before them."""
    names: dict[str, bool] = {}
    variables: dict[str, str] = {}
    for path, entry in parameters(space):
        found = _names(path, entry)
        for name in sorted(found.keys() & names.keys()):
            text = f"found the name {printable(name)} a second time; a dot joins the names of nested hyperparameters"
            yield Problem(path, f"{text}; accepted: each name once; rename one of the two")
        its = {variable(name): name for name, has_one in found.items() if has_one and name not in names}
        for each in sorted(its.keys() & variables.keys()):
            text = f"found {printable(its[each])}, whose variable {each} is also that of {printable(variables[each])}"
            only = "names that differ in letters a to z, whatever their case, in digits or in length"
            yield Problem(path, f"{text}; accepted: {only}; rename one of the two")
        names |= found
        variables |= its


def _names(path: Path, entry: Mapping[str, Any]) -> dict[str, bool]:
    """Return the dotted names of one hyperparameter, several for a mapping, and whether each has a variable."""
    values = entry.get("vals") if entry["type"] == "categorical" else [entry.get("val")]
    names: dict[str, bool] = {}
    for value in values if isinstance(values, list) else ():
        for name, each in flat({".".join(path): value}).items():
            names[name] = names.get(name, False) or not isinstance(each, list)
    return names


def _problems(path: Path, entry: Mapping[str, Any], algorithms: Collection[str]) -> Iterator[Problem]:
    """Yield the problems of one hyperparameter."""
    kind = entry["type"]
    if not isinstance(kind, str) or kind not in _KEYS:
        near = suggestion(str(kind), _KEYS)
        constant = "; a constant named `type` is written `type: {type: const, val: …}`" if not near else ""
        yield Problem((*path, "type"), f"{found(kind)}; accepted: {', '.join(_KEYS)}{near}{constant}")
        return
    accepted = ("type", *_KEYS[kind])
    for key in entry:
        if key not in accepted:
            near = suggestion(str(key), accepted)
            yield Problem((*path, str(key)), f"unknown key; accepted: {', '.join(accepted)}{near}")
    if kind != "const" and "single" in algorithms:
        yield Problem(path, f"found a range of type {kind}; accepted with the searcher `single`: a constant")
    if kind == "const" and "val" not in entry:
        yield Problem((*path, "val"), "found nothing; accepted: the value of the constant")
    elif kind == "categorical":
        if not isinstance(entry.get("vals"), list) or not entry["vals"]:
            yield Problem((*path, "vals"), f"{found(entry.get('vals'))}; accepted: a list of at least one value")
    elif kind != "const":
        yield from _range_problems(path, entry, "grid" in algorithms)


def _range_problems(path: Path, entry: Mapping[str, Any], is_grid: bool) -> Iterator[Problem]:
    """Yield the problems of an int, double or log hyperparameter."""
    whole = entry["type"] == "int"
    what = "a whole number" if whole else "a number"
    wrong = [key for key in ("minval", "maxval") if not is_number(entry.get(key), whole=whole)]
    yield from (Problem((*path, key), f"{found(entry.get(key))}; accepted: {what}") for key in wrong)
    if not wrong and entry["minval"] >= entry["maxval"]:
        low, high = entry["minval"], entry["maxval"]
        yield Problem((*path, "maxval"), f"found {high}; accepted: {what} above `minval`, which is {low}")
        wrong.append("maxval")
    if entry["type"] == "log":
        base = entry.get("base", BASE)
        if not is_number(base) or base <= 0 or base == 1:
            yield Problem((*path, "base"), f"{found(base)}; accepted: a number above 0 other than 1")
        elif not wrong and not all(_is_power(base, entry[key]) for key in ("minval", "maxval")):
            text = f"found the exponents {entry['minval']} to {entry['maxval']} of base {base}"
            yield Problem(path, f"{text}; accepted: powers that are numbers above 0 and below 1e308")
    count = entry.get("count")
    if count is not None and (not is_number(count, whole=True) or count < 1):
        yield Problem((*path, "count"), f"{found(count)}; accepted: a whole number above 0")
    elif count is None and is_grid:
        yield Problem((*path, "count"), "found nothing; the searcher `grid` needs the number of values in the grid")


def is_number(value: object, *, whole: bool = False) -> bool:
    """Return whether a value is a finite number; 2.0 is a whole number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value) and not (whole and value % 1)
    except OverflowError:  # an int above 1e308
        return False


def _is_power(base: float, exponent: float) -> bool:
    """Return whether a power can be computed and is above 0."""
    try:
        return math.pow(base, exponent) > 0
    except OverflowError:
        return False


def found(value: object) -> str:
    """Return a value for a message."""
    if value is None:
        return "found nothing"
    text = printable(repr(value))
    return f"found {text if len(text) <= _LONGEST else text[: _LONGEST - 3] + '...'}"
