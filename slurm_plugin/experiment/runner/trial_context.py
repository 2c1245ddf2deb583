"""What a Trial of any framework may ask for at any time: its values, its batch size, its place."""

import os
from pathlib import Path
from typing import Any

from slurm_plugin.errors import UsageError
from slurm_plugin.experiment import trial
from slurm_plugin.experiment.runner.distributed import DistributedContext
from slurm_plugin.experiment.runner.session import Session


class TrialContext:
    """The runner as a Trial sees it."""

    def __init__(self, session: Session, distributed: DistributedContext, *, slots: int) -> None:
        """Make the context of a trial on this rank. `slots`: the devices of all ranks, which share a global batch."""
        self._session, self._settings = session, session.settings
        self.distributed, self.slots = distributed, slots
        self._stop_requested = False

    def get_hparams(self) -> dict[str, Any]:
        """Return the hyperparameters of this trial."""
        return dict(self._settings.hparams)

    def get_hparam(self, name: str) -> Any:
        """Return a hyperparameter. Raise ValueError if the experiment has no such one."""
        if name not in self._settings.hparams:
            raise ValueError(
                f"hyperparameter {name!r}: the experiment has {', '.join(self._settings.hparams) or 'none'}"
            )
        return self._settings.hparams[name]

    def get_global_batch_size(self) -> int:
        """Return the records in a batch of all slots."""
        if not self._settings.global_batch_size:
            raise ValueError("the hyperparameters have no global_batch_size")
        return self._settings.global_batch_size

    def get_per_slot_batch_size(self) -> int:
        """Return the records in a batch of one slot: its share of the global batch, rounded down."""
        share = self.get_global_batch_size() // self.slots
        if not share:
            raise UsageError(
                f"global_batch_size: found {self.get_global_batch_size()} for {self.distributed.size} ranks"
            )
        return share

    def get_experiment_config(self) -> dict[str, Any]:
        """Return the experiment, in the form of its file."""
        return dict(self._settings.config)

    def get_data_config(self) -> dict[str, Any]:
        """Return `data` of the experiment's file."""
        return dict(self._settings.data)

    def get_experiment_id(self) -> int:
        """Return the number of the experiment's array job; 0 outside Slurm."""
        return int(os.environ.get("SLURM_ARRAY_JOB_ID") or os.environ.get("SLURM_JOB_ID") or 0)

    def get_trial_id(self) -> int:
        """Return the number of the trial; 0 outside an experiment."""
        return self._settings.number

    def get_trial_seed(self) -> int:
        """Return the seed of the trial."""
        return self._settings.seed

    def get_initial_batch(self) -> int:
        """Return the batches of the checkpoint with which this run began."""
        return self._session.began

    def get_stop_requested(self) -> bool:
        """Return whether the Trial asked for its end."""
        return self._stop_requested

    def set_stop_requested(self, stop_requested: bool) -> None:
        """Ask the runner to save and to end the trial soon."""
        if not isinstance(stop_requested, bool):
            raise AssertionError(f"stop_requested: found {type(stop_requested).__name__}, accepted: True, False")
        self._stop_requested = stop_requested

    def get_tensorboard_path(self) -> Path:
        """Return the directory for event files of TensorBoard, in the trial's directory."""
        return trial.tensorboard()
