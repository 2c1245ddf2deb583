"""What a TFKerasTrial calls: wrap its objects, configure `model.fit`."""

from typing import Any, Final

import tensorflow as tf

from slurm_plugin.experiment.runner.keras.data import Fit
from slurm_plugin.experiment.runner.keras.start import Ranks
from slurm_plugin.experiment.runner.session import Session
from slurm_plugin.experiment.runner.trial_context import TrialContext

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
        """Set arguments of `model.fit`. A later call leaves those as they are that it does not name."""
        named: dict[str, Any] = {
            "verbose": verbose,
            "workers": workers,
            "use_multiprocessing": use_multiprocessing,
            "max_queue_size": max_queue_size,
            "shuffle": shuffle,
        }
        changed = {name: value for name, value in named.items() if value is not None}
        optional = {"class_weight": class_weight, "validation_steps": validation_steps}
        changed |= {name: value for name, value in optional.items() if value is not UNSET}
        self.fit_arguments = self.fit_arguments._replace(**changed)
