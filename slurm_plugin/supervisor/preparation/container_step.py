"""Prepare the container of a launch: find its mounts, and check whether the job's first node can start it."""

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from slurm_plugin.launch.container import APPTAINER, IMAGE_FLAG, PYXIS, Container, mount
from slurm_plugin.records import job_plan
from slurm_plugin.records.job_plan import JobPlan
from slurm_plugin.slurm import steps

NVIDIA, AMD = "/dev/nvidiactl", "/dev/kfd"


def job_container(
    plan: JobPlan, environ: Mapping[str, str], task_prolog: Callable[[], str], copies: str = ""
) -> Container | None:
    """Return the container of a job with the program's mounts; None if the plan has no container.

    The mounts are the job's working directory, also under its path in PWD, the directories of checkpoints and logs, and
    `copies`, the directory for the nodes' copies of data. `task_prolog` returns slurm.conf's TaskProlog. With pyxis
    Slurm looks for it inside the container, and a task does not start without it. Raise UsageError for a path that
    cannot be mounted.
    """
    if not plan.container:
        return None
    found = job_plan.fields(Container, plan.container)
    if found.gpu:
        of_amd = os.path.exists(AMD) and not os.path.exists(NVIDIA)  # noqa: PTH110
        found = found._replace(gpu="rocm" if of_amd else "nv")
    here, others = Path.cwd(), []
    if (named := environ.get("PWD", "")) and _same(named, str(here)):
        others.append(named)
    written = filter(None, (plan.checkpoint, plan.logs))
    others += filter(None, (_directory(here / path, here) for path in written))
    if plan.stage_in and copies:
        others.append(copies)
    mounts = [*map(mount, others)]
    if found.runtime == PYXIS and (prolog := task_prolog()).startswith("/"):
        mounts.append(f"{prolog}:{prolog}:ro")
    image = str(here / found.image) if _is_path(found) else found.image  # a held job's shell starts elsewhere
    return found._replace(image=image).placed(str(here), mounts)


def lacking(inside: Container | None, environ: Mapping[str, str]) -> str:
    """Return why the container cannot be started from this node; empty if no problem was found."""
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
    """Return whether the image is a path, not the name of an image to download."""
    return inside.image.startswith((".", "/")) if inside.runtime == PYXIS else "://" not in inside.image


def _same(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)  # noqa: PTH121
    except OSError:
        return False


def _directory(path: Path, here: Path) -> str:
    """Return the directory to mount: `path` or its nearest existing parent; empty if that is in `here` or is `/`."""
    path = Path(os.path.normpath(path))
    while not os.path.isdir(path):  # noqa: PTH112 - Path.is_dir raises, for example if a file server is away
        path = path.parent
    return "" if path.is_relative_to(here) or path == Path("/") else str(path)
