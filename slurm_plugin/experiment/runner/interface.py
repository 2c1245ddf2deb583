"""What a PyTorchTrial derives from and hands over: PyTorchTrial, PyTorchCallback, LRScheduler."""

import abc
import enum
from typing import Any

from slurm_plugin.experiment.runner import data
from slurm_plugin.experiment.runner.reducers import Reducer


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
