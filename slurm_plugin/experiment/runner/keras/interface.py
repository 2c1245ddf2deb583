"""What a TFKerasTrial derives from and hands over: TFKerasTrial, Callback, and Keras' callbacks that need validations.

The callbacks are those of `determined.keras.callbacks`: they act after each validation and are saved with a checkpoint.
"""

import abc
import importlib.util
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from slurm_plugin.experiment import trial
from slurm_plugin.experiment.runner.keras.checkpoint import plain

ArrayLike: TypeAlias = np.ndarray[Any, Any] | list[Any] | dict[str, Any]


class SequenceAdapter:
    """A Sequence with arguments of `model.fit`. `context.configure_fit` is the newer way."""

    def __init__(
        self,
        sequence: Any,
        use_multiprocessing: bool = False,
        workers: int = 1,
        max_queue_size: int = 10,
    ) -> None:
        self.sequence, self.workers, self.max_queue_size = sequence, workers, max_queue_size
        self.use_multiprocessing = use_multiprocessing


InputData: TypeAlias = tf.keras.utils.Sequence | tf.data.Dataset | SequenceAdapter | tuple  # type: ignore[type-arg]


class TFKerasTrial(abc.ABC):
    """A training as a class. The runner has the loop, the ranks, the checkpoints and the reports."""

    def __init__(self, context: Any) -> None:
        """Keep the context."""
        self.context = context

    @abc.abstractmethod
    def build_model(self) -> Any:
        """Return a model that is wrapped by `context.wrap_model` and compiled."""

    @abc.abstractmethod
    def build_training_data_loader(self) -> Any:
        """Return (x, y) or (x, y, sample_weights) of NumPy arrays, a wrapped tf.data.Dataset, or a keras Sequence."""

    @abc.abstractmethod
    def build_validation_data_loader(self) -> Any:
        """Return data as `build_training_data_loader` does."""

    def keras_callbacks(self) -> list[Any]:
        """Return callbacks of Keras or of determined.keras.callbacks."""
        return []

    def session_config(self) -> Any:
        """Return a ConfigProto of TensorFlow 1. The runner does not call this."""
        return None


class Callback(tf.keras.callbacks.Callback):
    """A callback of Keras with the points of the runner's own, and with a state."""

    def on_train_workload_begin(self, total_batches_trained: int, batches_requested: int | None, logs: Any) -> None:
        """Before the first batch, and after each report of the training."""

    def on_train_workload_end(self, total_batches_trained: int, logs: Any) -> None:
        """After a report of the training, with its metrics."""

    def on_checkpoint_end(self, checkpoint_dir: str) -> None:
        """Rank 0, when the files of a checkpoint are written: it may add some."""

    def get_state(self) -> Any:
        """Return the state for the checkpoint: anything that pickle takes."""

    def load_state(self, state: Any) -> None:
        """Set the state from the checkpoint, after `on_train_begin`."""


class _AfterValidation(Callback):
    """Lets a callback of Keras act after each validation, in place of the end of an epoch."""

    _validations = 0

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Do nothing."""

    def on_test_end(self, logs: Any = None) -> None:
        """Do what Keras' callback does at the end of an epoch."""
        super().on_epoch_end(self._validations, logs)
        self._validations += 1

    def get_state(self) -> Any:
        """Return what the callback has counted."""
        return plain(self)

    def load_state(self, state: Any) -> None:
        """Set what the callback has counted."""
        self.__dict__.update(state)


class EarlyStopping(_AfterValidation, tf.keras.callbacks.EarlyStopping):
    """Keras' EarlyStopping, after each validation."""


class ReduceLROnPlateau(_AfterValidation, tf.keras.callbacks.ReduceLROnPlateau):
    """Keras' ReduceLROnPlateau, after each validation."""


class _EventFiles(Callback, tf.keras.callbacks.TensorBoard):
    """Keras' TensorBoard, with its files in the trial's directory."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "log_dir": str(trial.tensorboard())})


class _NoEventFiles(Callback):
    """In place of Keras' TensorBoard where the package tensorboard is not installed."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()
        if not trial.rank():
            print("[slurm_plugin] TensorBoard: no event files; pip install tensorboard", flush=True)


TensorBoard = _EventFiles if importlib.util.find_spec("tensorboard") else _NoEventFiles
