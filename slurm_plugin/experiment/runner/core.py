"""The script interface `determined.core`, on the script API of a trial. Standard library only.

A script that reports, asks for its length, saves and stops by these calls runs as a trial without a change.
"""

import enum
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from slurm_plugin.errors import UsageError
from slurm_plugin.experiment import trial
from slurm_plugin.experiment.runner import settings
from slurm_plugin.experiment.runner.distributed import DistributedContext
from slurm_plugin.experiment.runner.session import Session, numbers

METADATA = "metadata.json"


class PreemptMode(enum.Enum):
    """Which ranks call `should_preempt`. All, or rank 0 alone."""

    WorkersAskChief = "WORKERS_ASK_CHIEF"
    ChiefOnly = "CHIEF_ONLY"
    WorkersAskMaster = "WORKERS_ASK_MASTER"


class SearcherMode(enum.Enum):
    """Which ranks call `operations`."""

    WorkersAskChief = "WORKERS_ASK_CHIEF"
    ChiefOnly = "CHIEF_ONLY"


class TensorboardMode(enum.Enum):
    """Accepted; event files stay where they are written."""

    AUTO = "AUTO"
    MANUAL = "MANUAL"


class EarlyExitReason(enum.Enum):
    """Why a trial ends early."""

    INVALID_HP = "EXITED_REASON_INVALID_HP"
    USER_REQUESTED_STOP = "EXITED_REASON_USER_REQUESTED_STOP"


class Unit(enum.Enum):
    """The unit of `max_length`."""

    EPOCHS = "UNIT_EPOCHS"
    RECORDS = "UNIT_RECORDS"
    BATCHES = "UNIT_BATCHES"


class SearcherOperation:
    """The one operation of a trial: to train to its full length."""

    def __init__(self, length: float, *, is_chief: bool) -> None:
        self.length = length
        self._is_chief = is_chief
        self.completed = False

    def report_progress(self, length: float) -> None:
        """Report how far the trial has trained, in the unit of its length."""
        if self._is_chief and self.length:
            trial.report_progress(min(length / self.length, 1.0))

    def report_completed(self, searcher_metric: Any) -> None:
        """Say that the length is reached. The search reads the metric from the reported validations."""
        trial.number("searcher_metric", searcher_metric)
        self.completed = True


class SearcherContext:
    """`context.searcher`."""

    def __init__(self, session: Session, distributed: DistributedContext) -> None:
        self._session, self._distributed = session, distributed

    def operations(self, searcher_mode: SearcherMode = SearcherMode.WorkersAskChief) -> Iterator[SearcherOperation]:
        """Yield the one operation. Its length counts from the begin of the trial, also after a restart."""
        length = self._session.settings.max_length.value
        yield SearcherOperation(length, is_chief=not self._distributed.rank)

    def get_configured_units(self) -> Unit | None:
        """Return the unit of the length; None for a metric's name."""
        return Unit.__members__.get(self._session.settings.max_length.unit.upper())

    def acknowledge_out_of_ops(self) -> None:
        """Do nothing: there is no server that waits."""


class TrainContext:
    """`context.train`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def report_training_metrics(
        self, steps_completed: int, metrics: Mapping[str, Any], batch_metrics: Any = None
    ) -> None:
        """Report metrics of the training."""
        self.report_metrics("training", steps_completed, metrics)

    def report_validation_metrics(self, steps_completed: int, metrics: Mapping[str, Any]) -> None:
        """Report a validation."""
        self.report_metrics("validation", steps_completed, metrics)

    def report_metrics(self, group: str, steps_completed: int, metrics: Mapping[str, Any]) -> None:
        """Report metrics. Those of a group other than training and validation have its name before theirs."""
        found = numbers(metrics)
        counts = {"batches": steps_completed, **{name: found[name] for name in trial.COUNTS if name in found}}
        if group == "validation":
            trial.report_validation(steps_completed, found, **counts)
            return
        prefix = "" if group == "training" else f"{group}."
        trial.report_training(steps_completed, {prefix + name: value for name, value in found.items()}, **counts)

    def report_progress(self, progress: float) -> None:
        """Report how much of the training is done, 0 to 1."""
        trial.report_progress(progress)

    def report_early_exit(self, reason: EarlyExitReason) -> None:
        """Report that the trial ends early. The script then ends with 0."""
        if reason.name == EarlyExitReason.INVALID_HP.name:
            trial.report_invalid()

    def set_status(self, status: str) -> None:
        """Print what the trial does now."""
        if not trial.rank():
            print(f"[slurm_plugin] {status}", flush=True)

    def get_experiment_best_validation(self) -> float | None:
        """Return the best value of the search's metric in the experiment so far."""
        return self._session.best_so_far()

    def get_tensorboard_path(self) -> Path:
        """Return the directory for event files of TensorBoard."""
        return trial.tensorboard()

    def upload_tensorboard_files(self, *_: Any, **__: Any) -> None:
        """Do nothing: they are in the trial's directory."""


class PreemptContext:
    """`context.preempt`."""

    def __init__(self, distributed: DistributedContext, mode: PreemptMode) -> None:
        self._distributed, self._mode = distributed, mode

    def should_preempt(self, auto_ack: bool = True) -> bool:
        """Return whether the trial shall save and end with 0."""
        told = trial.should_stop()
        if self._mode.name == PreemptMode.WorkersAskChief.name:
            told = bool(self._distributed.broadcast(told))
        return told

    def acknowledge_preemption_signal(self) -> None:
        """Do nothing: there is no server that waits."""


class CheckpointContext:
    """`context.checkpoint`. A checkpoint's id is its name: `step-00000100`."""

    def __init__(self, distributed: DistributedContext) -> None:
        self._distributed = distributed

    @contextmanager
    def store_path(
        self, metadata: Mapping[str, Any] | None = None, *, shard: bool = False
    ) -> Iterator[tuple[Path, str]]:
        """Yield a new directory and the id; at the end of the block the checkpoint is complete.

        `shard`: all ranks write; otherwise rank 0 alone calls this. Raise UsageError without `steps_completed`.
        """
        steps = (metadata or {}).get("steps_completed")
        if not isinstance(steps, int):
            raise UsageError(f"store_path: found steps_completed {steps!r} in the metadata, accepted is a whole number")
        path = trial.checkpoint.path(steps)
        yield path, trial.name(steps)
        if not self._distributed.rank:
            (path / METADATA).write_text(json.dumps(dict(metadata or {}), default=str) + "\n", encoding="utf-8")
        if shard:
            self._distributed.barrier()
        trial.checkpoint.report(steps, batches=steps)
        if shard:
            self._distributed.barrier()

    @contextmanager
    def restore_path(self, storage_id: str, **_: Any) -> Iterator[Path]:
        """Yield the directory of a checkpoint."""
        yield self._path(storage_id)

    def upload(
        self, ckpt_dir: str | Path | None, metadata: Mapping[str, Any] | None = None, *, shard: bool = False, **_: Any
    ) -> str:
        """Copy a directory to a new checkpoint. Return its id."""
        with self.store_path(metadata, shard=shard) as (path, name):
            if ckpt_dir is not None:
                shutil.copytree(ckpt_dir, path, dirs_exist_ok=True)
        return name

    def download(self, storage_id: str, ckpt_dir: str | Path, **_: Any) -> None:
        """Copy a checkpoint to a directory."""
        shutil.copytree(self._path(storage_id), ckpt_dir, dirs_exist_ok=True)

    def get_metadata(self, storage_id: str) -> dict[str, Any]:
        """Return what was given to `store_path`."""
        return dict(json.loads((self._path(storage_id) / METADATA).read_bytes()))

    def delete(self, storage_id: str) -> None:
        """Delete a checkpoint."""
        shutil.rmtree(self._path(storage_id))

    def _path(self, storage_id: str) -> Path:
        path = trial.checkpoint.directory / Path(storage_id).name
        if trial.step_of(path) < 0:
            raise UsageError(f"checkpoint {storage_id}: {path} is not there\n  they are in {path.parent}")
        return path


class Context:
    """What `core.init()` gives."""

    def __init__(self, distributed: DistributedContext, preempt_mode: PreemptMode) -> None:
        session = Session(settings.load(), share=lambda _: None)  # the script restores by itself
        self.distributed = distributed
        self.train = TrainContext(session)
        self.searcher = SearcherContext(session, distributed)
        self.preempt = PreemptContext(distributed, preempt_mode)
        self.checkpoint = CheckpointContext(distributed)
        self.info = settings.get_cluster_info()


@contextmanager
def init(
    *,
    distributed: DistributedContext | None = None,
    preempt_mode: PreemptMode = PreemptMode.WorkersAskChief,
    **_: Any,  # storage and TensorBoard: the experiment's directory has both
) -> Iterator[Context]:
    """Yield the context of this process. An InvalidHP in the block ends the program with 0."""
    made = Context(distributed or DistributedContext(), preempt_mode)
    try:
        yield made
        made.distributed.close()
    except settings.InvalidHP as error:
        trial.invalid_hp(str(error))
