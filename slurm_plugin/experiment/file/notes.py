"""What an experiment file asks for that has no meaning on Slurm: a sentence each."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from slurm_plugin.experiment.file import keys
from slurm_plugin.experiment.file.job import image_of, job_name
from slurm_plugin.experiment.file.keys import ExperimentFile, SharedFS, Storage
from slurm_plugin.experiment.file.slots import Slots
from slurm_plugin.records.token import MAX_RETRIES
from slurm_plugin.spec.documents import Document

_IGNORED: Final = "ignored, as Determined has long done"
_OF_RUNTIME: Final = "the container runtime has its own"
# The place of a key -> what becomes of it. The key is named only if the file sets it to more than its default.
_NOTES: Final[Mapping[str, str]] = {
    "workspace": "workspace and project: Slurm has none; they are only kept in the experiment's copy of the file",
    "data_layer": _IGNORED,
    "internal": _IGNORED,
    "resources.agent_label": _IGNORED,
    "resources.slots": "ignored; slots_per_trial counts",
    "resources.native_parallel": _IGNORED,
    "resources.shm_size": "programs use the node's own /dev/shm, which Slurm does not limit",
    "resources.priority": "Slurm's own priorities decide; see: sprio",
    "resources.weight": "Slurm's own shares decide; see: sshare",
    "resources.devices": "a container has the devices of its node that Slurm gave to the job",
    "environment.force_pull_image": _OF_RUNTIME + " cache of images",
    "environment.registry_auth": _OF_RUNTIME + " login; see: apptainer remote login, or enroot's .credentials",
    "environment.registrt_auth": _OF_RUNTIME + " login; see: apptainer remote login, or enroot's .credentials",
    "environment.ports": "a program opens its ports on the node itself",
    "environment.proxy_ports": "there is no proxy; a program opens its ports on the node itself",
    "environment.add_capabilities": "a container has the rights of its user",
    "environment.drop_capabilities": "a container has the rights of its user",
    "environment.pod_spec": "there is no Kubernetes",
    "optimizations.gradient_compression": "not supported; gradients are sent as they are",
    "optimizations.mixed_precision": "not supported; use torch.autocast in the Trial class",
    "optimizations.auto_tune_tensor_fusion": "an option of Horovod, which is not used",
    "optimizations.grad_updates_size_file": "an option of Horovod, which is not used",
    "optimizations.tensor_fusion_cycle_time": "an option of Horovod, which is not used",
    "optimizations.tensor_fusion_threshold": "an option of Horovod, which is not used",
    "pbs": "this is Slurm",
    "profiling": "not supported; use the profiler of the framework",
    "tensorboard_storage": "event files are in the directory of the experiment",
    "log_policies": "slurm-plugin diagnose reads the log of a failed trial, by its own signatures",
    "retention_policy": "slurm-plugin clean removes logs, by its own age",
    "integrations": "not supported",
    "security": "Slurm's own users and groups count",
}
# Keys that only a Trial class can follow, as other programs train by themselves.
_OF_TRIALS: Final = (
    *("min_validation_period", "min_checkpoint_period", "scheduling_unit", "perform_initial_validation"),
    *("checkpoint_policy", "optimizations", "data"),
)
_PROPAGATION: Final = "rprivate"


def of_file(
    file: ExperimentFile, storage: Storage, slots: Slots, document: Document, *, is_trial: bool
) -> Iterator[str]:
    """Yield the sentences for one file."""
    for place, text in _NOTES.items():
        if _given(document.fields, place):
            yield text if place == "workspace" else f"{place}: {text}"
    if file.name and job_name(file.name) != file.name:
        yield f"name: Slurm's job is named {job_name(file.name)}"
    if file.max_restarts > MAX_RETRIES:
        yield f"max_restarts: a job has at most {MAX_RETRIES} restarts"
    if not isinstance(storage, SharedFS):
        yield (
            f"checkpoint_storage.type {storage.type}: nothing is uploaded; checkpoints are in the directory of the"
            " experiment"
        )
    if any(each.propagation != _PROPAGATION for each in file.bind_mounts):
        yield "bind_mounts.propagation: the container runtime decides"
    if file.bind_mounts and not image_of(file, slots):
        yield "bind_mounts: there is no container, so the program sees the nodes' own paths"
    if not is_trial:
        unused = [key for key in _OF_TRIALS if document.fields.get(key) is not None]
        if unused:
            yield f"{', '.join(unused)}: for Trial classes only; this command trains by itself"


def _given(fields: Mapping[str, Any], place: str) -> bool:
    """Return whether the file sets the key at a dotted place to anything but nothing or false."""
    value: Any = fields
    for key in place.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value not in (*keys.NULL, "false", "False", False, [], {})
