"""How metrics of several batches and ranks become one: by a Reducer, or by the Trial's own MetricReducer."""

import abc
import enum
import itertools
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from slurm_plugin.errors import UsageError

_ABSENT: Final = object()


class Reducer(enum.Enum):
    """What is made of a metric's values. AVG weighs each rank by its number of batches."""

    AVG = 1
    SUM = 2
    MAX = 3
    MIN = 4


class MetricReducer(abc.ABC):
    """A metric of the Trial's own: each rank reduces what it has seen, then one value is made of all ranks' results."""

    @abc.abstractmethod
    def reset(self) -> None:
        """Forget what was seen. Called before each part of the training and before each validation."""

    @abc.abstractmethod
    def per_slot_reduce(self) -> Any:
        """Return the result of this rank."""

    @abc.abstractmethod
    def cross_slot_reduce(self, per_slot_metrics: list[Any]) -> Any:
        """Return the metric from the results of all ranks, or a mapping of several if it was wrapped without a name."""


class FunctionReducer(MetricReducer):
    """What `wrap_reducer` makes of a function: it collects the values given to `update`."""

    def __init__(self, function: Callable[[list[Any]], Any]) -> None:
        self.fn = function
        self.values: list[Any] = []

    def reset(self) -> None:
        """Forget the values."""
        self.values = []

    def update(self, value: Any) -> None:
        """Collect a value."""
        self.values.append(value)

    def per_slot_reduce(self) -> list[Any]:
        """Return the values of this rank."""
        return self.values

    def cross_slot_reduce(self, per_slot_metrics: list[Any]) -> Any:
        """Call the function with all values, in the order of the undivided data."""
        rounds = itertools.zip_longest(*per_slot_metrics, fillvalue=_ABSENT)
        return self.fn([value for each in rounds for value in each if value is not _ABSENT])


class Wrapped(NamedTuple):
    """A MetricReducer, the name of its metric (None: it returns a mapping), and where it is used."""

    reducer: Any
    name: str | None
    for_training: bool
    for_validation: bool


def reduced(wrapped: Iterable[Wrapped], allgather: Callable[[Any], list[Any]], *, training: bool) -> dict[str, Any]:
    """Return the metrics of these reducers over all ranks. Raise UsageError for a result that has no name, or two."""
    used = [each for each in wrapped if (each.for_training if training else each.for_validation)]
    if not used:
        return {}
    found: dict[str, Any] = {}
    everything = allgather([each.reducer.per_slot_reduce() for each in used])
    for each, of_ranks in zip(used, zip(*everything, strict=True), strict=True):
        value = each.reducer.cross_slot_reduce(list(of_ranks))
        if isinstance(value, Mapping) == (each.name is not None):
            accepted = "one value: it has a name" if each.name else "a mapping of names to values: it has no name"
            raise UsageError(
                f"wrap_reducer: {type(each.reducer).__name__} {each.name or ''} returned a {type(value).__name__},"
                f" accepted is {accepted}"
            )
        found |= value if isinstance(value, Mapping) else {str(each.name): value}
    return found


def flat(value: Any) -> list[float]:
    """Return the numbers in a value: a number, a tensor, an array, or a sequence of them."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [each for inner in value for each in flat(inner)]
    return [float(value)]


def combined(reducer: Any, values: Sequence[Any], weights: Sequence[float] | None = None) -> float:
    """Reduce values to one number. `reducer`: a Reducer, also one of the real `determined`. `weights`: for AVG."""
    name = getattr(reducer, "name", None)
    if name not in Reducer.__members__:
        raise UsageError(f"evaluation_reducer: found {reducer!r}, accepted are {', '.join(Reducer.__members__)}")
    if name == "AVG" and weights is not None:
        return float(sum(weight * each for weight, each in zip(weights, values, strict=True)) / sum(weights))
    numbers = flat(list(values))
    if name == "AVG":
        return statistics.fmean(numbers)
    return sum(numbers) if name == "SUM" else (max if name == "MAX" else min)(numbers)


def averages(batches: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the average of each metric over these batches. A metric that is no number keeps its last value."""
    found: dict[str, Any] = {}
    for name in dict.fromkeys(name for each in batches for name in each):
        values = [each[name] for each in batches if each.get(name) is not None]
        try:
            found[name] = statistics.fmean(number for value in values for number in flat(value))
        except (TypeError, ValueError):
            found[name] = values[-1] if values else None
    return found


def of_validation(
    batches: Sequence[Mapping[str, Any]], wanted: Any, gather: Callable[[Any], list[Any] | None]
) -> dict[str, Any]:
    """Return the metrics of a validation on rank 0, from each rank's batches; empty on the other ranks.

    `wanted`: a Reducer, or a mapping of metric names to Reducers. Raise UsageError if the names differ.
    """
    names = list(batches[0]) if batches else []
    if different := next((each for each in batches if list(each) != names), None):
        raise UsageError(f"evaluate_batch: a batch has the metrics {list(different)}, an earlier one {names}")

    def reducer(name: str) -> Any:
        if isinstance(wanted, Mapping) and name not in wanted:
            raise UsageError(f"evaluation_reducer: found none for {name}, only for {', '.join(map(str, wanted))}")
        return wanted[name] if isinstance(wanted, Mapping) else wanted

    mine = {name: combined(reducer(name), [each[name] for each in batches]) for name in names}
    everything = gather((mine, len(batches)))
    if everything is None:
        return {}
    ranks = [(metrics, count) for metrics, count in everything if count]
    if not ranks:
        raise UsageError("the validation data has no batch\n  look at: build_validation_data_loader")
    counts = [count for _, count in ranks]
    return {name: combined(reducer(name), [metrics[name] for metrics, _ in ranks], counts) for name in ranks[0][0]}
