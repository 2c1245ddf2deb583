"""What the runner of a Trial class reports and keeps (metrics, checkpoints, progress), and what a Trial may ask it.

Both frameworks use it. Every rank has a session; rank 0 alone writes. Standard library only.
"""

import json
import math
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from slurm_plugin.errors import SlurmPluginError, UsageError, printable
from slurm_plugin.experiment import trial
from slurm_plugin.experiment.journal import Journal
from slurm_plugin.experiment.runner.distributed import DistributedContext
from slurm_plugin.experiment.runner.settings import Settings

PROGRESS: Final = "progress.json"  # in each checkpoint


class Progress(NamedTuple):
    """How far a trial has trained. Saved with each checkpoint."""

    batches: int = 0
    epochs: int = 0
    validated: int = -1  # the batches at the last validation
    saved: int = -1  # the batches at the last checkpoint
    best: float | None = None  # this trial's best value of the metric
    done: bool = False  # the reported metric that is the unit of `max_length` has reached it

    @classmethod
    def load(cls, checkpoint: Path) -> "Progress":
        """Read the progress of a checkpoint. Raise UsageError if it is not one of this runner."""
        try:
            found = json.loads((checkpoint / PROGRESS).read_bytes())
            return cls(**{name: found[name] for name in cls._fields if name in found})
        except (OSError, ValueError, TypeError) as error:
            raise UsageError(f"{checkpoint}: no checkpoint of a Trial class: {error}") from error

    def save(self, checkpoint: Path) -> None:
        """Write it into a checkpoint."""
        (checkpoint / PROGRESS).write_text(json.dumps(self._asdict()) + "\n", encoding="utf-8")


class Session:
    """The reports and the checkpoints of one trial."""

    def __init__(self, settings: Settings, epoch: int = 1, share: Callable[[Any], Any] = lambda found: found) -> None:
        """Begin, or go on from the newest checkpoint.

        `epoch`: batches in an epoch; a framework may set it later. `share` returns rank 0's value on every rank: the
        ranks must not take different checkpoints.
        """
        self.settings = settings
        self.epoch = epoch
        self.restored: Path | None = share(trial.checkpoint.latest())
        self.progress = Progress.load(self.restored) if self.restored else Progress()
        self.began = self.progress.batches
        if self.restored and not trial.rank():
            print(f"[slurm_plugin] restored {self.restored.name}", flush=True)
        self._journal: Journal | None = None

    @property
    def counts(self) -> dict[str, float]:
        """Return the batches, epochs and records so far."""
        batches = self.progress.batches
        records = {"records": batches * self.settings.global_batch_size} if self.settings.global_batch_size else {}
        return {"batches": batches, "epochs": self.progress.epochs, **records}

    def trained(self, batches: int = 1) -> None:
        """Count batches, and the epochs that end with them."""
        total = self.progress.batches + batches
        self.progress = self.progress._replace(batches=total, epochs=total // self.epoch)

    def is_over(self) -> bool:
        """Return whether the trial has trained to its full length."""
        return self.progress.done or self.progress.batches >= self._batches(self.settings.max_length)

    def due(self) -> frozenset[str]:
        """Return what is to be done after this batch, of `report`, `validate`, `checkpoint`, `end`."""
        settings, batches = self.settings, self.progress.batches
        found = {
            "report": batches % settings.scheduling_unit == 0,
            "validate": self._due(settings.validation),
            "checkpoint": self._due(settings.checkpoint),
            "end": self.is_over(),
        }
        return frozenset(name for name, is_due in found.items() if is_due)

    def fraction(self) -> float:
        """Return how much of the full length is done, 0 to 1."""
        whole = self._batches(self.settings.max_length)
        return min(self.progress.batches / whole, 1.0) if math.isfinite(whole) else 0.0

    def report_training(self, metrics: Mapping[str, Any]) -> None:
        """Report metrics of the training, averaged over the ranks and the batches since the last report."""
        self._reached(metrics)
        found = numbers(metrics)
        trial.report_training(self.progress.batches, found, **self.counts)
        trial.report_progress(self.fraction())
        self._log("training", found)

    def report_validation(self, metrics: Mapping[str, Any]) -> bool:
        """Report a validation. Return whether the checkpoint policy asks for a checkpoint now.

        Raise UsageError if the metric of the search is not among the metrics. Rank 0 alone may call this.
        """
        found, metric = numbers(metrics), self.settings.metric
        if metric.name and metric.name not in found:
            names = ", ".join(map(printable, sorted(found))) or "none that is one number"
            raise UsageError(
                f"metric {printable(metric.name)}: the validation has {names}\n"
                "  give the experiment's metric one of these names, or return it from the Trial's validation"
            )
        best = True
        if metric.name:
            value = found[metric.name]
            best = self._is_better(value, self.best_so_far())
            if math.isfinite(value) and self._is_better(value, self.progress.best):
                self.progress = self.progress._replace(best=value)
        self._reached(found)
        self.progress = self.progress._replace(validated=self.progress.batches)
        trial.report_validation(self.progress.batches, found, **self.counts)
        self._log("validation", found)
        policy = self.settings.policy
        return not self.is_saved and (policy == "all" or (policy == "best" and best))

    @property
    def is_validated(self) -> bool:
        """Return whether the last validation was of the current state."""
        return self.progress.validated == self.progress.batches

    @property
    def is_saved(self) -> bool:
        """Return whether the last checkpoint is of the current state."""
        return self.progress.saved == self.progress.batches

    def save(self, write: Callable[[Path], None], barrier: Callable[[], None] = lambda: None) -> Path:
        """Write a checkpoint and report it. Return its directory.

        `write` is called on every rank with the new directory. `barrier` returns when all ranks have called it.
        """
        self.progress = self.progress._replace(saved=self.progress.batches)
        path = trial.checkpoint.path(self.progress.batches)
        write(path)
        if not trial.rank():
            self.progress.save(path)
        barrier()
        final = trial.checkpoint.report(self.progress.batches, **self.counts)
        barrier()
        return final

    def _log(self, kind: str, metrics: Mapping[str, Any]) -> None:
        """Print what was reported, for the reader of the log. Outside an experiment the report itself is printed."""
        if os.environ.get(trial.METRICS) and not trial.rank():
            trial.show({"kind": kind, "batches": self.progress.batches, "epochs": self.progress.epochs, **metrics})

    def _batches(self, length: Any) -> float:
        found: float = length.batches(self.epoch, self.settings.global_batch_size or 1)
        return found

    def _due(self, length: Any) -> bool:
        found: bool = length.is_due(self.progress.batches, self.epoch, self.settings.global_batch_size or 1)
        return found

    def _reached(self, metrics: Mapping[str, Any]) -> None:
        """See whether the metric that is the unit of `max_length` has reached it."""
        length = self.settings.max_length
        value = metrics.get(length.unit)
        if length.unit not in trial.COUNTS and isinstance(value, int | float) and value >= length.value:
            self.progress = self.progress._replace(done=True)

    def _is_better(self, value: float, than: float | None) -> bool:
        if than is None or not math.isfinite(value):
            return than is None
        return value < than if self.settings.metric.smaller_is_better else value > than

    def best_so_far(self) -> float | None:
        """Return the experiment's best value of the metric: what the journal says, and this trial's own."""
        found = [self.progress.best]
        with suppress(SlurmPluginError, OSError):  # without the journal the policy saves more often
            metric = self.settings.metric
            if self._journal is None and self.settings.directory:
                self._journal = Journal(self.settings.directory)
            best = self._journal.read().best(metric) if self._journal else None
            found.append(best and best.value(metric))
        values = [each for each in found if each is not None and math.isfinite(each)]
        return (min if self.settings.metric.smaller_is_better else max)(values, default=None)


def numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Return the metrics that are one number. A Trial may also return arrays, images and texts."""
    found = {}
    for name, value in metrics.items():
        try:
            found[str(name)] = trial.number(str(name), value)
        except UsageError:
            continue
    return found


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
