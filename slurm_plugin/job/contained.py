"""The container of a launch, as the job's first node sees it: what is mounted there, and what is missing for it."""

import argparse
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from slurm_plugin import container
from slurm_plugin.container import APPTAINER, IMAGE_FLAG, PYXIS, Container
from slurm_plugin.slurm import steps

NVIDIA, AMD = "/dev/nvidiactl", "/dev/kfd"


def made(
    options: argparse.Namespace, environ: Mapping[str, str], task_prolog: str, copies: str = ""
) -> Container | None:
    """The container of a job, with what the program needs to see: its directory, under the name too that the batch
    script went there by, where its checkpoints are, and `copies`: where nodes keep copies of its data.

    `task_prolog` is slurm.conf's: with pyxis Slurm looks for it in the container, and no task starts where it is not.
    Raises UsageError where no runtime can mount one of them.
    """
    found = container.of(options, "rocm" if os.path.exists(AMD) and not os.path.exists(NVIDIA) else "nv")  # noqa: PTH110
    if found is None:
        return None
    here, others = Path.cwd(), []
    if (named := environ.get("PWD", "")) and _same(named, str(here)):
        others.append(named)
    if options.checkpoint and (outside := _directory(here / options.checkpoint, here)):
        others.append(outside)
    if options.stage_in and copies:
        others.append(copies)
    if found.runtime == PYXIS and task_prolog.startswith("/"):
        others.append(f"{task_prolog}:{task_prolog}:ro")
    image = str(here / found.image) if _is_path(found) else found.image  # a held job's shell starts elsewhere
    return found._replace(image=image).placed(str(here), others)


def lacking(inside: Container | None, environ: Mapping[str, str]) -> str:
    """Why the container cannot be started from this node, in words; empty where nothing is known to be missing."""
    if inside is None:
        return ""
    if inside.runtime == APPTAINER and not shutil.which(APPTAINER, path=environ.get("PATH")):
        where = "install it there, or submit with its directory on your PATH"
        return f"{APPTAINER} was not found on the PATH of this node; {where}"
    if inside.runtime == PYXIS and steps.takes(IMAGE_FLAG) is False:
        return f"srun has no --{IMAGE_FLAG} on this node: its Slurm is without pyxis; see: srun --help"
    if _is_path(inside) and not os.path.exists(inside.image):  # noqa: PTH110 - a file, or a directory
        return f"the image {inside.image} was not found on this node; is its directory shared with all nodes?"
    return ""


def _is_path(inside: Container) -> bool:
    """Whether the image is a file or a directory, and no name of one that has to be fetched."""
    return inside.image.startswith((".", "/")) if inside.runtime == PYXIS else "://" not in inside.image


def _same(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)  # noqa: PTH121
    except OSError:
        return False


def _directory(path: Path, here: Path) -> str:
    """The directory to mount for a path: itself, or the nearest above it; empty where that is in `here`, or is `/`."""
    path = Path(os.path.normpath(path))
    while not path.is_dir():
        path = path.parent
    return "" if path.is_relative_to(here) or path == Path("/") else str(path)
