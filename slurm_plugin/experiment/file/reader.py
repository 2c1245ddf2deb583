"""An experiment file as a whole: its record, the job of its trials, all problems together.

The notes say what has no meaning on Slurm, a sentence each.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from slurm_plugin.experiment.file import job as jobs
from slurm_plugin.experiment.file import keys, search_section
from slurm_plugin.experiment.file.entrypoint import Program
from slurm_plugin.experiment.file.entrypoint import program as read_program
from slurm_plugin.experiment.file.job import Machines, Slots, image_of, job_name
from slurm_plugin.experiment.file.keys import ExperimentFile, SharedFS, Storage
from slurm_plugin.records.experiments import Experiment, Retention
from slurm_plugin.records.features import MOST_NODES
from slurm_plugin.records.nearest import suggestion
from slurm_plugin.records.token import MAX_RETRIES
from slurm_plugin.slurm import Node, SlurmError
from slurm_plugin.spec import checked, documents
from slurm_plugin.spec.documents import Document, Problem, found
from slurm_plugin.spec.key_types import KINDS
from slurm_plugin.spec.sbatch_flags import Known
from slurm_plugin.spec.submit_config import SubmitConfig

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


ENTRYPOINT: Final = "entrypoint"
STORAGE: Final = "checkpoint_storage"
BATCH_SIZE: Final = "global_batch_size"
_ONE_NODE: Final = ("script", "single")
_SLOTS: Final = ("resources", "slots_per_trial")
Made = tuple[Experiment, dict[str, Any], str]


def read(
    document: Document,
    path: Path,
    site: SubmitConfig,
    *,
    nodes: Callable[[], Iterable[Node]] | None,
    known: Known | None,
    program: bool,
    seed: Callable[[], int],
) -> tuple[Made | None, tuple[Problem, ...]]:
    """Return the experiment, its job, and where its directory is made; or None and the problems.

    `path`: of the file, absolute. An empty place for the directory is the job's.
    The other arguments are those of slurm_plugin.experiment.file.loader.load. `seed` returns one for a file without.
    """
    file, wrong = documents.record(document, ExperimentFile)
    its, of_searcher = search_section.searcher(document)
    storage, of_storage = _storage(document)
    values = document.fields.get(search_section.HYPERPARAMETERS, {})
    problems = [*wrong, *of_searcher, *of_storage]
    if isinstance(values, dict):
        values = search_section.with_vals(values)
        problems += search_section.space_problems(values, its.name if its else "")
    if file is None or its is None or storage is None:
        return None, tuple(problems)
    entry, of_entry = _program(file, path.parent if program else None, needed=program)
    kinds, unknown = _machines(file, site, nodes)
    slots, of_slots = _slots(file, entry, kinds)
    is_trial = bool(entry.trial)
    seeds = {
        given for part in (file, file.environment, file.reproducibility) if (given := part.experiment_seed) is not None
    }
    if len(seeds) > 1:
        text = f"found {' and '.join(map(str, sorted(seeds)))} in two places; keep one of them"
        problems.append(Problem(("experiment_seed",), text))
    problems += [
        *of_entry,
        *of_slots,
        *search_section.problems(file, its, is_trial=is_trial and program),
        *jobs.problems(file, storage, slots),
        *(_batch_size(values, file.resources.slots_per_trial) if is_trial and program else ()),
    ]
    job = jobs.job(
        file, entry, slots, storage, path.parent, name=path.stem, pools=site.experiment.pools,
        runtime=site.container.runtime or "",
    )  # fmt: skip
    if not problems:
        _, of_job = checked(Document(job), known=known)
        problems += [Problem(jobs.place(each.path), each.text) for each in of_job]
    search = search_section.search(
        file, its, values, slots=file.resources.slots_per_trial, seed=min(seeds) if seeds else seed()
    )
    experiment = Experiment(
        name=job["name"],
        search=search,
        retries=file.max_restarts,
        grace_s=float(jobs.grace_s(file, entry)),
        retention=Retention(storage.save_experiment_best, storage.save_trial_best, storage.save_trial_latest),
        runner=_runner(file, entry),
        description=file.description,
        labels=file.labels,
        notes=(
            *search_section.notes(file, its),
            *of_file(file, storage, slots, document, is_trial=is_trial),
            *unknown,
        ),
    )
    return (None if problems else (experiment, job, jobs.checkpoints(storage))), tuple(problems)


def _storage(document: Document) -> tuple[Storage | None, tuple[Problem, ...]]:
    """Return where checkpoints go, whose keys depend on the type; or None and the problems."""
    fields = document.fields.get(STORAGE, {})
    if not isinstance(fields, dict):
        return None, ()  # the record of the whole file has the problem
    kind = fields.get("type", "shared_fs")
    if not isinstance(kind, str) or kind not in keys.STORAGES:
        near = suggestion(str(kind), keys.STORAGES)
        text = f"found {found(kind)}; accepted: {', '.join(keys.STORAGES)}{near}"
        return None, (Problem((STORAGE, "type"), text),)
    made, problems = documents.record(Document({STORAGE: fields}), keys.STORAGES[kind], (STORAGE,))
    if isinstance(made, SharedFS) and "type" in fields and not made.host_path:
        problems = (*problems, Problem((STORAGE, "host_path"), "missing; accepted: an absolute path"))
    return made, problems


def _program(file: ExperimentFile, directory: Path | None, *, needed: bool) -> tuple[Program, tuple[Problem, ...]]:
    """Return what the entrypoint starts, and its problem."""
    nothing = Program("script", "true")
    if not file.entrypoint:
        text = "missing; accepted: a Trial class as module:Class, or a command"
        return nothing, (Problem((ENTRYPOINT,), text),) if needed else ()
    try:
        return read_program(file.entrypoint, directory), ()
    except ValueError as error:
        return nothing, (Problem((ENTRYPOINT,), str(error)),)


def _machines(
    file: ExperimentFile, site: SubmitConfig, nodes: Callable[[], Iterable[Node]] | None
) -> tuple[tuple[Machines, ...] | None, tuple[str, ...]]:
    """Return the kinds of nodes that a trial may have, None if they are not known; and a note that says why."""
    wanted = file.slurm.gpu_type or ""
    if file.slurm.slots_per_node:
        return (Machines(KINDS[0], wanted, file.slurm.slots_per_node, MOST_NODES),), ()
    if nodes is None:
        return None, ()
    pool = file.resources.resource_pool
    try:
        kinds = jobs.machines(nodes(), site.experiment.pools.get(pool, pool))
    except SlurmError as error:
        return None, (f"resources.slots_per_trial: not checked, as Slurm did not name its nodes: {error.one_line}",)
    return tuple(each for each in kinds if wanted in ("", each.type)), ()


def _slots(
    file: ExperimentFile, entry: Program, kinds: tuple[Machines, ...] | None
) -> tuple[Slots, tuple[Problem, ...]]:
    """Return the nodes of a trial, and the problem if none fit."""
    resources = file.resources
    one_node = resources.is_single_node or entry.mode in _ONE_NODE
    try:
        return jobs.fit(resources.slots_per_trial, kinds, one_node=one_node), ()
    except ValueError as error:
        why = ", as a command runs on one node" if entry.mode in _ONE_NODE else ""
        return Slots(devices=resources.slots_per_trial), (Problem(_SLOTS, f"{error}{why}"),)


def _batch_size(values: Mapping[str, Any], slots: int) -> Iterator[Problem]:
    """Yield the problem of a batch that cannot be divided among the slots of a trial."""
    given = values.get(BATCH_SIZE)
    size = given.get("val") if isinstance(given, dict) else given
    path = (search_section.HYPERPARAMETERS, BATCH_SIZE)
    if given is None:
        yield Problem(path, "missing; accepted: a whole number, which a Trial class divides among its slots")
    elif not isinstance(given, dict) and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
        yield Problem(path, f"found {found(size)}; accepted: a whole number above 0")
    elif isinstance(size, int) and slots and size % slots:
        near = max(size // slots, 1) * slots
        yield Problem(path, f"found {size}, which {slots} slots cannot share equally; accepted: such as {near}")


def _runner(file: ExperimentFile, entry: Program) -> dict[str, Any]:
    """Return what the runner of a Trial class reads; empty for another program."""
    if not entry.trial:
        return {}
    optimizations = file.optimizations
    return {
        "entrypoint": entry.trial,
        "framework": entry.framework,
        "data": file.data,
        "records_per_epoch": file.records_per_epoch,
        "scheduling_unit": file.scheduling_unit,
        "min_validation_period": dict(file.min_validation_period.given),
        "min_checkpoint_period": dict(file.min_checkpoint_period.given),
        "perform_initial_validation": file.perform_initial_validation,
        "checkpoint_policy": file.checkpoint_policy,
        "optimizations": {
            "aggregation_frequency": optimizations.aggregation_frequency,
            "average_aggregated_gradients": optimizations.average_aggregated_gradients,
            "average_training_metrics": optimizations.average_training_metrics,
        },
        "slots": file.resources.slots_per_trial,
    }
