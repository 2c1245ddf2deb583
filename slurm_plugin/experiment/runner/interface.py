"""What a PyTorchTrial derives from and hands over: PyTorchTrial, PyTorchCallback, LRScheduler."""

import abc
import enum
import itertools
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from slurm_plugin.errors import UsageError
from slurm_plugin.experiment.runner import data

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


class LRScheduler:
    """A scheduler of the learning rate, with the times at which the runner steps it."""

    class StepMode(enum.Enum):
        """When the runner calls `step()`."""

        STEP_EVERY_EPOCH = 1
        STEP_EVERY_BATCH = 2
        MANUAL_STEP = 3
        STEP_EVERY_OPTIMIZER_STEP = 4

    def __init__(self, scheduler: Any, step_mode: Any, frequency: int = 1) -> None:
        """Wrap a scheduler. `frequency`: it is stepped every so many epochs, batches or steps of the optimizer."""
        if getattr(step_mode, "name", None) not in self.StepMode.__members__:
            raise TypeError(f"step_mode: found {step_mode!r}, accepted is one of LRScheduler.StepMode")
        self._scheduler, self._step_mode, self._frequency = scheduler, step_mode, frequency

    def step(self, *args: Any, **kwargs: Any) -> None:
        """Step the scheduler."""
        self._scheduler.step(*args, **kwargs)

    def get_last_lr(self) -> list[Any]:
        """Return the learning rates of the last step."""
        return list(self._scheduler.get_last_lr())

    def state_dict(self) -> dict[str, Any]:
        """Return the scheduler's state."""
        return dict(self._scheduler.state_dict())

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Set the scheduler's state."""
        self._scheduler.load_state_dict(state_dict)

    def after_batch(self, batch: int, epoch: int, aggregation: int) -> None:
        """Step after the batch with this index, if it is time. `epoch`: batches in one. `aggregation`: a step's."""
        if (batch + 1) % aggregation:
            return  # the optimizer has not stepped
        mode, every = self._step_mode.name, self._frequency
        if mode == "STEP_EVERY_BATCH":
            counted = range(batch - aggregation + 2, batch + 2)
        elif mode == "STEP_EVERY_OPTIMIZER_STEP":
            counted = range(batch + 1, batch + 2)
        elif mode == "STEP_EVERY_EPOCH":  # the next step of the optimizer is in a later epoch
            counted = range(batch // epoch + 1, (batch + aggregation) // epoch + 1)
        else:
            return
        for each in counted:
            if each % every == 0:
                self.step()


class PyTorchCallback:
    """What a Trial may do at certain points. Each rank calls it, except where it says rank 0."""

    def on_trial_startup(self, first_batch_idx: int, checkpoint_uuid: str | None) -> None:
        """Before the data loaders are made. `checkpoint_uuid`: the checkpoint that will be restored, or None."""

    def on_trial_shutdown(self) -> None:
        """At the end, also after an error."""

    def on_training_start(self) -> None:
        """After the checkpoint is restored, before the first batch."""

    def on_training_epoch_start(self, epoch_idx: int) -> None:
        """Before the first batch of an epoch."""

    def on_training_epoch_end(self, epoch_idx: int) -> None:
        """After the last batch of an epoch."""

    def on_training_workload_end(self, avg_metrics: dict[str, Any], batch_metrics: list[dict[str, Any]]) -> None:
        """After the training metrics are reported."""

    def on_validation_start(self) -> None:
        """Before a validation."""

    def on_validation_end(self, metrics: dict[str, Any]) -> None:
        """After a validation, with the metrics of all ranks."""

    def on_validation_epoch_start(self) -> None:
        """Before the first batch of a validation."""

    def on_validation_epoch_end(self, outputs: list[Any]) -> None:
        """After the last batch of a validation, with this rank's metrics of each batch."""

    def on_checkpoint_load_start(self, checkpoint: dict[str, Any]) -> None:
        """Before the state of a checkpoint is used."""

    def on_checkpoint_save_start(self, checkpoint: dict[str, Any]) -> None:
        """Rank 0, before the state is written; it may be changed."""

    def on_checkpoint_end(self, checkpoint_dir: str) -> None:
        """Rank 0, as `on_checkpoint_write_end`."""

    def on_checkpoint_write_end(self, checkpoint_dir: str) -> None:
        """Rank 0, when the files are written: it may add some."""

    def on_checkpoint_upload_end(self, uuid: str) -> None:
        """After the checkpoint is complete. `uuid`: its name."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state for the checkpoint."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Set the state from the checkpoint."""


class PyTorchTrial(abc.ABC):
    """A training as a class. The runner has the loop, the ranks, the checkpoints and the reports."""

    @abc.abstractmethod
    def __init__(self, context: Any) -> None:
        """Make models, optimizers and schedulers, and wrap them with the context."""

    @abc.abstractmethod
    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        """Train on a batch. Return a mapping of metrics, or the loss."""

    @abc.abstractmethod
    def build_training_data_loader(self) -> Any:
        """Return a determined.pytorch.DataLoader or a torch.utils.data.DataLoader."""

    @abc.abstractmethod
    def build_validation_data_loader(self) -> Any:
        """Return a determined.pytorch.DataLoader or a torch.utils.data.DataLoader."""

    def build_callbacks(self) -> dict[str, Any]:
        """Return PyTorchCallbacks by name."""
        return {}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        """Return the metrics of a batch of the validation. `batch_idx` may be left out of the signature."""
        raise NotImplementedError

    def evaluate_full_dataset(self, data_loader: Any) -> dict[str, Any]:
        """In place of `evaluate_batch`: return the metrics of the whole validation. Rank 0 alone calls it."""
        raise NotImplementedError

    def evaluation_reducer(self) -> Any:
        """Return how the metrics of `evaluate_batch` are reduced: a Reducer, or a mapping of names to Reducers."""
        return Reducer.AVG

    def get_batch_length(self, batch: Any) -> int:
        """Return the number of records in a batch."""
        return data.data_length(batch)
