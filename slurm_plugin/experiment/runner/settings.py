"""What a Trial class is run with: the settings of its experiment, the values of its trial, and `get_cluster_info`.

Outside an experiment everything has its default, and the trial trains for one epoch. Standard library only.
"""

import math
import os
import random
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from slurm_plugin.errors import UsageError
from slurm_plugin.experiment import journal, trial
from slurm_plugin.records import experiments

POLICIES: Final = ("best", "all", "none")
SEED_BITS: Final = 31  # as Determined's seeds: 0 to 2^31 - 1
_NONE: Final = experiments.Experiment("", experiments.Search(experiments.Metric(""), {}, ()))


class Length(NamedTuple):
    """How long something lasts, or how often it happens. 0: never."""

    value: float = 0
    unit: str = "batches"  # batches, epochs, records, or the name of a reported metric

    @classmethod
    def read(cls, found: Any, what: str) -> "Length":
        """Read `{unit: n}` or a bare number of batches. Raise UsageError for anything else."""
        if isinstance(found, Mapping) and len(found) == 1:
            (unit, value) = next(iter(found.items()))
        else:
            unit, value = "batches", found or 0
        if unit not in trial.COUNTS or isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise UsageError(
                f"{what}: found {found!r}, accepted is one of batches, epochs, records with a whole number"
            )
        return cls(value, unit)

    def batches(self, epoch: int, global_batch: int) -> float:
        """Return the number of batches; infinite for 0, and for the name of a metric.

        `epoch`: batches in an epoch. `global_batch`: records in a batch of all ranks.
        """
        if self.value <= 0 or self.unit not in trial.COUNTS:
            return math.inf
        if self.unit == "records":
            return max(self.value // global_batch, 1)
        return self.value * epoch if self.unit == "epochs" else self.value

    def is_due(self, batches: int, epoch: int, global_batch: int) -> bool:
        """Return whether something with this period happens after so many batches."""
        return math.fmod(batches, self.batches(epoch, global_batch)) == 0


class Settings(NamedTuple):
    """The settings of a Trial class."""

    entrypoint: str
    framework: str  # pytorch, keras; empty: found out from the class
    number: int  # of the trial; 0 outside an experiment
    seed: int  # of this trial: the same in each of its runs
    hparams: Mapping[str, Any]
    config: Mapping[str, Any]  # the experiment as its file has it, for the Trial's get_experiment_config
    metric: experiments.Metric
    max_length: Length
    validation: Length  # min_validation_period
    checkpoint: Length  # min_checkpoint_period
    scheduling_unit: int
    records_per_epoch: int
    initial_validation: bool
    policy: str  # best: a checkpoint after a validation that is the experiment's best so far; all: after each; none
    aggregation: int  # batches a step of the optimizer
    average_gradients: bool
    directory: Path | None  # the experiment's

    @property
    def data(self) -> Mapping[str, Any]:
        """Return the `data` of the experiment's file."""
        found = self.config.get("data")
        return found if isinstance(found, Mapping) else {}

    @property
    def global_batch_size(self) -> int:
        """Return the hyperparameter `global_batch_size`; 0 without it. Raise UsageError for anything but a number."""
        found = self.hparams.get("global_batch_size", 0)
        if isinstance(found, bool) or not isinstance(found, int | float) or found < 0 or found != int(found):
            raise UsageError(f"global_batch_size: found {found!r}, accepted is a whole number above 0")
        return int(found)


def load(entrypoint: str = "", environ: Mapping[str, str] = os.environ) -> Settings:
    """Return the settings of this process' trial. `entrypoint`: in place of the experiment's. Raise UsageError."""
    directory = Path(environ[trial.EXPERIMENT]) if environ.get(trial.EXPERIMENT) else None
    found = journal.read_experiment(directory) if directory else _NONE
    search, runner, number = found.search, found.runner, environ.get(trial.TRIAL, "")
    optimizations = runner.get("optimizations") or {}
    policy = runner.get("checkpoint_policy") or "best"
    if policy not in POLICIES:
        raise UsageError(f"checkpoint_policy: found {policy!r}, accepted are {', '.join(POLICIES)}")
    return Settings(
        entrypoint=entrypoint or str(runner.get("entrypoint", "")),
        framework=str(runner.get("framework", "")),
        number=int(number) if number.isdecimal() else 0,
        seed=random.Random(f"{search.seed}:{number}").getrandbits(SEED_BITS),  # noqa: S311 - no secret
        hparams=trial.values(environ.get(trial.HPARAMS, "")),
        config=_config(found),
        metric=search.metric,
        max_length=Length(search.max_length, search.unit) if search.max_length else Length(1, "epochs"),
        validation=Length.read(runner.get("min_validation_period"), "min_validation_period"),
        checkpoint=Length.read(runner.get("min_checkpoint_period"), "min_checkpoint_period"),
        scheduling_unit=int(runner.get("scheduling_unit") or 100),
        records_per_epoch=int(runner.get("records_per_epoch") or 0),
        initial_validation=bool(runner.get("perform_initial_validation")),
        policy=policy,
        aggregation=max(int(optimizations.get("aggregation_frequency") or 1), 1),
        average_gradients=bool(optimizations.get("average_aggregated_gradients", True)),
        directory=directory,
    )


def _config(found: experiments.Experiment) -> Mapping[str, Any]:
    """Return the experiment in the form of its file, as far as a Trial may ask for it."""
    search = found.search
    algorithm = search.algorithms[0] if search.algorithms else experiments.Algorithm("single")
    searcher = {
        **algorithm.options,
        "name": algorithm.name,
        "metric": search.metric.name,
        "smaller_is_better": search.metric.smaller_is_better,
        "max_length": {search.unit: search.max_length},
    }
    about = {"name": found.name, "description": found.description, "labels": list(found.labels)}
    return {**about, "hyperparameters": search.space, "searcher": searcher, "data": {}, **found.runner}


class InvalidHP(Exception):  # noqa: N818 - Determined's name
    """Raised by a Trial: these hyperparameters cannot work. The trial ends and does not count."""


class TrialInfo(NamedTuple):
    """`get_cluster_info().trial`."""

    trial_id: int
    experiment_id: int
    trial_seed: int
    hparams: Mapping[str, Any]


class ClusterInfo(NamedTuple):
    """`get_cluster_info()`."""

    latest_checkpoint: str | None  # the name of the newest complete one
    trial: TrialInfo
    user_data: Mapping[str, Any]  # `data` of the experiment's file
    task_type: str
    container_addrs: tuple[str, ...]
    container_rank: int
    slot_ids: tuple[int, ...]

    @property
    def gpu_uuids(self) -> tuple[str, ...]:
        """Return the GPUs of this rank's node."""
        return tuple(filter(None, os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")))


def get_cluster_info() -> ClusterInfo | None:
    """Return the trial that this process belongs to; None outside an experiment."""
    if not os.environ.get(trial.TRIAL):
        return None
    found, latest = load(), trial.checkpoint.latest()
    job = os.environ.get("SLURM_ARRAY_JOB_ID") or os.environ.get("SLURM_JOB_ID") or "0"
    node = os.environ.get("SLURM_NODEID", "0")
    slots = int(os.environ.get("LOCAL_WORLD_SIZE") or os.environ.get("SLOTS") or 1)
    return ClusterInfo(
        latest_checkpoint=latest.name if latest else None,
        trial=TrialInfo(found.number, int(job), found.seed, found.hparams),
        user_data=found.data,
        task_type="TRIAL",
        container_addrs=tuple(os.environ.get("SLURM_PLUGIN_HOSTS", socket.gethostname()).split(",")),
        container_rank=int(node),
        slot_ids=tuple(range(slots)),
    )
