"""What a Trial or a script may ask about its surroundings, with Determined's names. Standard library only."""

import os
import socket
from collections.abc import Mapping
from typing import Any, NamedTuple

from slurm_plugin.experiment import trial
from slurm_plugin.experiment.runner import settings


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
    found, latest = settings.load(), trial.checkpoint.latest()
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
