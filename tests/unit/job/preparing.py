"""The preparation of a job, made from the words that follow `job supervise`."""

from collections.abc import Callable, Mapping
from pathlib import Path

from slurm_plugin.job import changes, prestart, taskfile
from slurm_plugin.job.prepare import Preparation

Prepare = Callable[..., Preparation]


def hooked(place: Path, *, set_: Mapping[str, str] | None = None, unset: tuple[str, ...] = ()) -> None:
    """A hook beside the program, and what it changed on this node."""
    (place / "ma-pre-start.sh").touch()
    folder = taskfile.folder(str(place.parent / "run"), "7.0.0")
    prestart.hand_on(folder, changes.Changes(set_ or {}, unset, {}))
