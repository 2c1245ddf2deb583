"""The keys of an experiment file: both dialects of Determined, up to 0.37 and 0.38, with its defaults."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal

from msgspec import Meta

from slurm_plugin.spec.documents import ONE, Document, Path, Problem, found
from slurm_plugin.spec.key_types import Part, whole
from slurm_plugin.spec.search_key import MetricName, Trials

UNITS: Final = ("records", "batches", "epochs")
NULL: Final = ("", "~", "null", "Null", "NULL", None)
_FREE: Final = ("hyperparameters", "data")  # their content is the user's
TYPED: Final = tuple((key,) for key in (*_FREE, "searcher"))  # paths whose scalars have types, as in YAML 1.2

_MOST: Final = 2**53
Flag = Annotated[bool, Meta(description="true, false")]
Count = Annotated[int, whole(0, _MOST)]
Positive = Annotated[int, whole(1, _MOST)]
Seed = Annotated[int, whole(0, 2**31 - 1)]
Kept = Annotated[int, whole(0, _MOST, ": a number of checkpoints")]
Absolute = Annotated[str, Meta(pattern=r"^/", description="an absolute path")]
Texts = Annotated[tuple[str, ...], Meta(description="a text, or a list of texts", extra=ONE)]
MemorySize = Annotated[
    str,
    Meta(
        pattern=r"^([0-9]*[.])?[0-9]+ ?(([kmgtpKMGTP]([iI]?[bB])?)|[bB])?\Z",
        description="a number of bytes, or a size such as 128M or 1.5G",
    ),
]
Mapped = Mapping[str, Any]


class Length(Part, frozen=True):
    """A length of training in one unit."""

    batches: Count | None = None
    records: Count | None = None
    epochs: Count | None = None
    accepted = "one of {batches: N}, {records: N}, {epochs: N}"

    @property
    def given(self) -> tuple[tuple[str, int], ...]:
        """Return the units that are given, each with its number."""
        return tuple((unit, number) for unit in UNITS if (number := getattr(self, unit)) is not None)


class Searcher(Part, frozen=True, kw_only=True):
    """What every searcher has."""

    name: str
    metric: MetricName
    smaller_is_better: Flag = True
    max_length: Length | None = None
    source_trial_id: Any = None
    source_checkpoint_uuid: Any = None


class Random(Searcher, frozen=True, kw_only=True):
    """Searcher `random`."""

    max_trials: Trials
    max_concurrent_trials: Annotated[int, whole(0, 65536)] = 16


class Grid(Searcher, frozen=True, kw_only=True):
    """Searcher `grid`."""

    max_concurrent_trials: Annotated[int, whole(0, 65536)] = 16


class Halving(Random, frozen=True, kw_only=True):
    """What the searchers that stop trials have."""

    divisor: Any = None
    stop_once: Any = None
    time_metric: MetricName | None = None
    max_time: Positive | None = None


class AdaptiveASHA(Halving, frozen=True, kw_only=True):
    """Searcher `adaptive_asha`."""

    mode: Any = None
    max_rungs: Any = None
    bracket_rungs: Any = None


class AsyncHalving(Halving, frozen=True, kw_only=True):
    """Searcher `async_halving`: one bracket of adaptive_asha."""

    num_rungs: Annotated[int, whole(1, 100)]


SEARCHERS: Final[Mapping[str, type[Searcher]]] = {
    "single": Searcher,
    "random": Random,
    "grid": Grid,
    "adaptive_asha": AdaptiveASHA,
    "async_halving": AsyncHalving,
}
ENDED: Final = ("adaptive", "adaptive_simple", "sync_halving", "pbt", "custom")  # Determined no longer has them


class Storage(Part, frozen=True, kw_only=True):
    """Checkpoints of any storage type: how many to keep."""

    type: str = "shared_fs"
    save_experiment_best: Kept = 0
    save_trial_best: Kept = 1
    save_trial_latest: Kept = 1


class SharedFS(Storage, frozen=True, kw_only=True):
    """Checkpoints on a file system of all nodes."""

    host_path: Absolute | None = None
    storage_path: str | None = None
    container_path: str | None = None
    checkpoint_path: str | None = None
    tensorboard_path: str | None = None
    propagation: str | None = None


class Directory(Storage, frozen=True, kw_only=True):
    """Checkpoints in a directory of the container."""

    container_path: str | None = None


class S3(Storage, frozen=True, kw_only=True):
    """Checkpoints in a bucket of S3."""

    bucket: str | None = None
    access_key: str | None = None
    secret_key: str | None = None
    endpoint_url: str | None = None
    prefix: str | None = None


class GCS(Storage, frozen=True, kw_only=True):
    """Checkpoints in a bucket of Google."""

    bucket: str | None = None
    prefix: str | None = None


class Azure(Storage, frozen=True, kw_only=True):
    """Checkpoints in a container of Azure."""

    container: str | None = None
    connection_string: str | None = None
    account_url: str | None = None
    credential: str | None = None


STORAGES: Final[Mapping[str, type[Storage]]] = {
    "shared_fs": SharedFS,
    "directory": Directory,
    "s3": S3,
    "gcs": GCS,
    "azure": Azure,
}


class BindMount(Part, frozen=True, kw_only=True):
    """A directory of the nodes in the container."""

    host_path: Absolute
    container_path: str
    read_only: Flag = False
    propagation: str = "rprivate"


class Images(Part, frozen=True):
    """The image for each kind of node; `gpu` is an old name of `cuda`."""

    cpu: str | None = None
    cuda: str | None = None
    rocm: str | None = None
    gpu: str | None = None


class Variables(Part, frozen=True):
    """Variables for each kind of node, as NAME=VALUE."""

    cpu: Texts = ()
    cuda: Texts = ()
    rocm: Texts = ()
    gpu: Texts = ()


class Environment(Part, frozen=True, rename={"registry_auth_as_seen": "registrt_auth"}):
    """The container of the program."""

    image: Images = Images()
    environment_variables: Variables = Variables()
    experiment_seed: Seed | None = None
    force_pull_image: Flag = False
    registry_auth: Any = None
    registry_auth_as_seen: Any = None  # a spelling of registry_auth in documentation
    ports: Any = None
    proxy_ports: Any = None
    add_capabilities: Any = None
    drop_capabilities: Any = None
    pod_spec: Any = None


class Resources(Part, frozen=True):
    """What a trial gets."""

    slots_per_trial: Annotated[int, whole(0, 65536)] = 1
    shm_size: MemorySize | None = None
    resource_pool: str = ""
    max_slots: Count | None = None
    is_single_node: Flag = False
    priority: Any = None
    weight: Any = None
    slots: Any = None
    devices: Any = None
    native_parallel: Any = None
    agent_label: Any = None


class Optimizations(Part, frozen=True):
    """How gradients are computed."""

    aggregation_frequency: Positive = 1
    average_aggregated_gradients: Flag = True
    average_training_metrics: Flag = True
    gradient_compression: Any = None
    mixed_precision: Any = None
    auto_tune_tensor_fusion: Any = None
    grad_updates_size_file: Any = None
    tensor_fusion_cycle_time: Any = None
    tensor_fusion_threshold: Any = None


class Reproducibility(Part, frozen=True):
    """Where Determined itself has the seed."""

    experiment_seed: Seed | None = None


class Slurm(Part, frozen=True):
    """What Determined's launcher for Slurm reads."""

    slots_per_node: Positive | None = None
    gpu_type: str | None = None
    sbatch_args: Texts = ()


class ExperimentFile(Part, frozen=True, kw_only=True):
    """The keys of the file."""

    name: str = ""
    description: str = ""
    labels: Texts = ()
    data: Mapped = {}  # noqa: RUF012 - msgspec copies it
    workspace: str = ""
    project: str = ""
    entrypoint: Texts = ()
    scheduling_unit: Positive = 100
    records_per_epoch: Count = 0
    max_restarts: Annotated[int, whole(0, _MOST)] = 5
    min_validation_period: Length = Length(batches=0)
    min_checkpoint_period: Length = Length(batches=0)
    perform_initial_validation: Flag = False
    checkpoint_policy: Literal["best", "all", "none"] = "best"
    checkpoint_storage: Mapped = {}  # noqa: RUF012 - msgspec copies it
    hyperparameters: Mapped = {}  # noqa: RUF012 - msgspec copies it
    searcher: Mapped
    resources: Resources = Resources()
    bind_mounts: tuple[BindMount, ...] = ()
    environment: Environment = Environment()
    experiment_seed: Seed | None = None
    reproducibility: Reproducibility = Reproducibility()
    optimizations: Optimizations = Optimizations()
    preemption_timeout: Count | None = None
    slurm: Slurm = Slurm()
    pbs: Any = None
    profiling: Any = None
    debug: Any = None
    tensorboard_storage: Any = None
    log_policies: Any = None
    retention_policy: Any = None
    integrations: Any = None
    security: Any = None
    data_layer: Any = None
    internal: Any = None


def plain(document: Document) -> Document:
    """Return the document without null values, and with one form of the keys that have two."""
    fields = {
        key: value if key in _FREE else _without_nulls(value)
        for key, value in document.fields.items()
        if value not in NULL
    }
    searcher, environment = fields.get("searcher"), fields.get("environment")
    if isinstance(searcher, dict) and isinstance(searcher.get("max_length"), int | float | str):
        fields["searcher"] = {**searcher, "max_length": {"batches": searcher["max_length"]}}
    if isinstance(environment, dict):
        fields["environment"] = {**environment}
        for key, of_one in (("image", str), ("environment_variables", list)):
            if isinstance(value := environment.get(key), of_one):
                fields["environment"][key] = dict.fromkeys(("cpu", "cuda", "rocm"), value)
    return Document(fields, document.lines)


def _without_nulls(value: Any) -> Any:
    """Return a value without the keys that are null: they have their defaults."""
    if not isinstance(value, dict):
        return value
    return {key: _without_nulls(part) for key, part in value.items() if part not in NULL}


def length_problems(length: Length, path: Path, least: int) -> Iterator[Problem]:
    """Yield the problem of a length that has not exactly one unit, or is too short."""
    units = length.given
    if len(units) != 1:
        names = ", ".join(unit for unit, _ in units) or "no unit"
        yield Problem(path, f"found {names}; accepted: {Length.accepted}")
    elif units[0][1] < least:
        yield Problem((*path, units[0][0]), f"found {found(units[0][1])}; accepted: a whole number from {least}")
