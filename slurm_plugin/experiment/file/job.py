"""The job spec that an experiment file becomes: what each of its trials runs, and on which nodes.

`slots_per_trial` becomes a part of one node, or whole nodes of one type.
"""

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple

from slurm_plugin.experiment.file.entrypoint import Program
from slurm_plugin.experiment.file.keys import ExperimentFile, SharedFS, Storage
from slurm_plugin.launch import container
from slurm_plugin.records.token import MAX_RETRIES
from slurm_plugin.slurm import Node
from slurm_plugin.spec import documents
from slurm_plugin.spec.documents import Problem, found
from slurm_plugin.spec.key_types import KINDS
from slurm_plugin.spec.sbatch_flags import BARE, KEY_OF
from slurm_plugin.spec.sbatch_flags import KEY as FLAGS

_SHOWN: Final = 6  # numbers in a message


class Machines(NamedTuple):
    """Nodes that have the same accelerators."""

    kind: str  # the gres name: gpu, npu; empty: they have none
    type: str  # the gres type; empty: Slurm does not know it
    devices: int  # of each node
    nodes: int


class Slots(NamedTuple):
    """The nodes of a trial, and the accelerators of each node."""

    nodes: int = 1
    kind: str = KINDS[0]
    devices: int = 0
    type: str = ""


def machines(nodes: Iterable[Node], partition: str = "") -> tuple[Machines, ...]:
    """Return the kinds of nodes of a partition, those with the most accelerators first; empty partition: of all."""
    found = Counter(_accelerators(node.gres) for node in nodes if not partition or partition in node.partitions)
    kinds = (Machines(*accelerators, count) for accelerators, count in found.items())
    return tuple(sorted(kinds, key=lambda each: (-each.devices, each.kind, each.type)))


def _accelerators(gres: Iterable[str]) -> tuple[str, str, int]:
    """Return kind, type and number of a node's accelerators. Of several types, the one with the most counts."""
    found = []
    for each in gres:
        kind, *rest = each.split(":")
        if kind in KINDS:
            number = int(rest[-1]) if rest and rest[-1].isdigit() else 1
            found.append((number, kind, rest[0] if rest and not rest[0].isdigit() else ""))
    number, kind, kind_type = max(found, default=(0, "", ""))
    return kind, kind_type, number


def fit(slots: int, known: Sequence[Machines] | None, *, one_node: bool = False) -> Slots:
    """Return the nodes of a trial with this many slots; None for `known`: Slurm was not asked, so it is one node.

    Where no node has accelerators, a slot is a node. Raise ValueError with the numbers that fit.
    """
    if not slots or not known:
        return Slots(devices=slots)
    most = known[0].devices
    if not most:
        return Slots(nodes=1 if one_node else slots)
    if holders := [each for each in known if each.devices >= slots]:
        return Slots(1, holders[-1].kind, slots)
    several = [] if one_node else [each for each in known if each.devices]
    for each in several:
        if not slots % each.devices and slots // each.devices <= each.nodes:
            return Slots(slots // each.devices, each.kind, each.devices, each.type)
    accepted = f"1 to {most} on one node"
    more = filter(None, (_multiples(slots, each) for each in several))
    raise ValueError(f"found {slots}; accepted: {'; '.join((accepted, *more))}")


def _multiples(slots: int, kind: Machines) -> str:
    """Return the multiples of a node's accelerators that are nearest to `slots`; empty if there are none."""
    numbers = [count * kind.devices for count in range(2, kind.nodes + 1)]
    nearest = sorted(sorted(numbers, key=lambda number: abs(number - slots))[:_SHOWN])
    of_type = f" of type {kind.type}" if kind.type else ""
    whole = f"whole nodes with {kind.devices}{of_type}, of which there are {kind.nodes}"
    return f"{', '.join(map(str, nearest))} on {whole}" if nearest else ""


GRACE_S: Final = 60  # for a Trial class to save a checkpoint
_LONGEST_NAME: Final = 64
# Keys of the job -> the keys of the experiment file that set them.
PLACES: Final[Mapping[documents.Path, documents.Path]] = {
    ("name",): ("name",),
    ("command",): ("entrypoint",),
    ("mode",): ("entrypoint",),
    ("nodes",): ("resources", "slots_per_trial"),
    ("accelerators",): ("resources", "slots_per_trial"),
    ("partition",): ("resources", "resource_pool"),
    ("retries",): ("max_restarts",),
    ("grace",): ("preemption_timeout",),
    ("env",): ("environment", "environment_variables"),
    ("container",): ("environment", "image"),
    ("container", "mounts"): ("bind_mounts",),
    (FLAGS,): ("slurm", "sbatch_args"),
}


def job(
    file: ExperimentFile,
    program: Program,
    slots: Slots,
    storage: Storage,
    directory: Path,
    *,
    name: str,
    pools: Mapping[str, str],
    runtime: str,
) -> dict[str, Any]:
    """Return the job spec. `pools`: the partitions of resource pools; `runtime`: the site's for containers."""
    pool, saves = file.resources.resource_pool, checkpoints(storage)
    retries = min(file.max_restarts, MAX_RETRIES)
    gpu_type = file.slurm.gpu_type or slots.type
    accelerators = {slots.kind: slots.devices, **({"type": gpu_type} if gpu_type else {})}
    image = image_of(file, slots)
    made = {
        "name": job_name(file.name or name),
        "mode": program.mode,
        "nodes": slots.nodes,
        "accelerators": accelerators if slots.devices else {},
        "partition": pools.get(pool, pool),
        "command": program.command,
        "env": dict(each.partition("=")[::2] for each in variables(file, slots)),
        "container": _container(file, image, saves, directory, runtime) if image else {},
        "workdir": str(directory),
        "retries": retries,
        "unconditional": "yes" if retries else "",
        "grace": f"{grace}s" if (grace := grace_s(file, program)) else "",
        **_of_sbatch(file),
    }
    return {key: value for key, value in made.items() if value not in ("", {}, 0)}


def grace_s(file: ExperimentFile, program: Program) -> int:
    """Return the seconds that a trial has to save after the signal to stop; 0: it gets no signal."""
    return file.preemption_timeout or (GRACE_S if program.trial else 0)


def problems(file: ExperimentFile, storage: Storage, slots: Slots) -> Iterator[Problem]:
    """Yield what cannot be on Slurm, and what is wrong in itself."""
    if bool(file.workspace) != bool(file.project):
        given, other = ("workspace", "project") if file.workspace else ("project", "workspace")
        yield Problem((given,), f"found it without `{other}`; give both, or neither")
    for number, each in enumerate(file.bind_mounts):
        if each.container_path == ".":
            yield Problem(("bind_mounts", str(number), "container_path"), "found '.'; accepted: another path")
        elif not image_of(file, slots) and each.container_path != each.host_path:
            text = f"found {found(each.host_path)} at {found(each.container_path)}, and no image: only a container has"
            yield Problem(("bind_mounts", str(number)), f"{text} other paths; give environment.image, or equal paths")
    for text in variables(file, slots):
        if "=" not in text:
            yield Problem(("environment", "environment_variables"), f"found {found(text)}; accepted: NAME=VALUE")
    if isinstance(storage, SharedFS) and storage.storage_path and storage.host_path:
        inside = PurePosixPath(storage.host_path) / storage.storage_path
        if ".." in inside.parts or not inside.is_relative_to(storage.host_path):
            text = f"found {found(storage.storage_path)}; accepted: a path inside host_path, {storage.host_path}"
            yield Problem(("checkpoint_storage", "storage_path"), text)
    for word in file.slurm.sbatch_args:
        if not re.match(r"--[a-z]", word):
            yield Problem(("slurm", "sbatch_args"), f"found {found(word)}; accepted: --NAME=VALUE or --NAME")


def job_name(text: str) -> str:
    """Return a name that a job can have: other characters than letters, digits, `.`, `_` and `-` become `-`."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", text, flags=re.ASCII).strip("-._")[:_LONGEST_NAME]
    return name or "experiment"


def checkpoints(storage: Storage) -> str:
    """Return where the directory of the experiment is, which has the checkpoints; empty: in that of the job."""
    if not isinstance(storage, SharedFS) or not storage.host_path:
        return ""
    return str(PurePosixPath(storage.host_path) / (storage.storage_path or ""))


def image_of(file: ExperimentFile, slots: Slots) -> str:
    """Return the image for the nodes of a trial; empty: no container."""
    images = file.environment.image
    if slots.devices:
        return images.cuda or images.gpu or images.rocm or ""
    return images.cpu or ""


def variables(file: ExperimentFile, slots: Slots) -> Sequence[str]:
    """Return the variables for the nodes of a trial, as NAME=VALUE."""
    given = file.environment.environment_variables
    return (given.cuda or given.gpu or given.rocm) if slots.devices else given.cpu


def place(path: documents.Path) -> documents.Path:
    """Return the place in the experiment file that sets a key of the job."""
    longest = max((key for key in PLACES if path[: len(key)] == key), key=len, default=())
    return PLACES.get(longest, ())


def _container(file: ExperimentFile, image: str, saves: str, directory: Path, runtime: str) -> dict[str, Any]:
    """Return the key `container` of the job. `saves`: where the experiment's directory is, is mounted, too."""
    runtime = container.fits(image) or runtime or container.APPTAINER
    mounts = [f"{container.mount(saves)}:{container.mount(saves)}"] if saves else []
    for each in file.bind_mounts:
        inside = str(directory / each.container_path)  # relative: in the directory where the program starts
        paths = f"{container.mount(each.host_path)}:{container.mount(inside)}"
        mounts.append(f"{paths}:ro" if each.read_only else paths)
    return {
        "image": _named(image, runtime, directory),
        "runtime": runtime,
        **({"mounts": list(dict.fromkeys(mounts))} if mounts else {}),
    }


def _named(image: str, runtime: str, directory: Path) -> str:
    """Return an image as the runtime names it. Determined has Docker's names: nvcr.io/nvidia/pytorch:24.01."""
    is_file = image.startswith(("/", "./")) or os.path.exists(directory / image)  # noqa: PTH110 - false for a long name
    if "://" in image or container.fits(image) or is_file:
        return image
    registry, slash, rest = image.partition("/")
    has_registry = bool(slash) and ("." in registry or ":" in registry or registry == "localhost")
    return f"docker://{registry}#{rest}" if has_registry and runtime == container.PYXIS else f"docker://{image}"


def _of_sbatch(file: ExperimentFile) -> dict[str, Any]:
    """Return the keys of a job for options of sbatch, and `sbatch` for those without a key."""
    keys: dict[str, Any] = {}
    for word in file.slurm.sbatch_args:
        name, equals, value = word.removeprefix("--").partition("=")
        if name in KEY_OF:
            keys[KEY_OF[name]] = value
        else:
            keys.setdefault(FLAGS, {})[name] = value if equals else BARE
    return keys
