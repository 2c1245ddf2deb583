"""The preparation of a job from a job plan."""

from collections.abc import Callable, Mapping
from pathlib import Path

from slurm_plugin.records import node_directory
from slurm_plugin.supervisor import prestart
from slurm_plugin.supervisor.preparation.prepare import Preparation

Prepare = Callable[..., Preparation]


def hooked(place: Path, *, set_: Mapping[str, str] | None = None, unset: tuple[str, ...] = ()) -> None:
    """Write a hook beside the program, and its changes on this node."""
    (place / "ma-pre-start.sh").touch()
    folder = node_directory.user_folder(str(place.parent / "run"), "7.0.0")
    prestart.hand_on(folder, prestart.Changes(set_ or {}, unset, {}))
