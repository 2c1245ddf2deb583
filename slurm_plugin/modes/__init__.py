"""The modes: one small module each, imported when it is asked for. Also runs on nodes: standard library only."""

import importlib
from collections.abc import Iterator, Mapping
from typing import Final

from slurm_plugin.modes.base import HOSTFILE, MESSAGES, Group, Launch, Mode, Options, Place, Shape

# mode, which is its module's name, too -> class
_CLASSES: Final = {
    "single": "Single",
    "openmpi": "OpenMpi",
    "mpich": "Mpich",
    "intelmpi": "IntelMpi",
    "horovod": "Horovod",
    "pytorch": "PyTorch",
    "deepspeed": "DeepSpeed",
    "tensorflow": "TensorFlow",
    "ascend": "Ascend",
    "script": "Script",
}


class _Modes(Mapping[str, Mode]):
    """The modes by name: a job has one of them, and does not wait for the others."""

    def __getitem__(self, name: str) -> Mode:
        kind = _CLASSES[name]
        mode: Mode = getattr(importlib.import_module(f"slurm_plugin.modes.{name}"), kind)()
        return mode

    def __iter__(self) -> Iterator[str]:
        return iter(_CLASSES)

    def __len__(self) -> int:
        return len(_CLASSES)


MODES: Final[Mapping[str, Mode]] = _Modes()

__all__ = ["HOSTFILE", "MESSAGES", "MODES", "Group", "Launch", "Mode", "Options", "Place", "Shape"]
