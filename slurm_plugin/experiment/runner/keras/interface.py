"""The names that a TFKerasTrial uses: its base class, its context, Callback, and Keras' callbacks after validations.

The callbacks act after each validation, as those of `determined.keras.callbacks`, and are saved with a checkpoint.
"""

import abc
import importlib.util
from typing import Any, Final, TypeAlias

import numpy as np
import tensorflow as tf

from slurm_plugin.experiment import trial
from slurm_plugin.experiment.runner.keras.checkpoint import plain
from slurm_plugin.experiment.runner.keras.data import Fit
from slurm_plugin.experiment.runner.keras.start import Ranks
from slurm_plugin.experiment.runner.session import Session, TrialContext

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


UNSET: Final = object()


class TFKerasTrialContext(TrialContext):
    """The runner as a TFKerasTrial sees it."""

    def __init__(self, session: Session, ranks: Ranks) -> None:
        """Make the context of a trial on this rank."""
        super().__init__(session, ranks.distributed, slots=ranks.replicas)
        self.model: Any = None
        self.optimizers: list[Any] = []
        self.dataset_initialized = False
        self.fit_arguments = Fit()

    def wrap_dataset(self, dataset: Any, shard_dataset: bool = True) -> Any:
        """Return this rank's part of a tf.data.Dataset: every n-th record. `shard_dataset=False`: all of it."""
        self.dataset_initialized = True
        if not isinstance(dataset, tf.data.Dataset) or not shard_dataset or self.distributed.size == 1:
            return dataset
        return dataset.shard(self.distributed.size, self.distributed.rank)

    def wrap_model(self, model: Any) -> Any:
        """Return the model, which the runner trains and saves. Call it before `model.compile`."""
        self.model = model
        return model

    def wrap_optimizer(self, optimizer: Any) -> Any:
        """Return the optimizer, which the runner saves."""
        self.optimizers.append(optimizer)
        return optimizer

    def configure_fit(  # noqa: PLR0917 - Determined's signature
        self,
        verbose: bool | None = None,
        class_weight: Any = UNSET,
        workers: int | None = None,
        use_multiprocessing: bool | None = None,
        max_queue_size: int | None = None,
        shuffle: bool | None = None,
        validation_steps: Any = UNSET,
    ) -> None:
        """Set arguments of `model.fit`. A later call leaves those as they are that it does not name.

        `verbose` and `use_multiprocessing` change nothing: the workers are threads.
        """
        named: dict[str, Any] = {"workers": workers, "max_queue_size": max_queue_size, "shuffle": shuffle}
        changed = {name: value for name, value in named.items() if value is not None}
        optional = {"class_weight": class_weight, "validation_steps": validation_steps}
        changed |= {name: value for name, value in optional.items() if value is not UNSET}
        self.fit_arguments = self.fit_arguments._replace(**changed)
