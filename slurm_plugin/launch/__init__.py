"""The modes: one module each, imported on first use. This also runs on nodes, so it needs only the standard library."""

import importlib
from collections.abc import Iterator, Mapping
from typing import Final

from slurm_plugin.launch.mode import HOSTFILE, MESSAGES, Group, Launch, Mode, Options, Place, Shape

# name of the mode and of its module -> class in that module
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
    """The modes by name. A job imports only the module of its mode."""

    def __getitem__(self, name: str) -> Mode:
        kind = _CLASSES[name]
        mode: Mode = getattr(importlib.import_module(f"slurm_plugin.launch.{name}"), kind)()
        return mode

    def __iter__(self) -> Iterator[str]:
        return iter(_CLASSES)

    def __len__(self) -> int:
        return len(_CLASSES)


MODES: Final[Mapping[str, Mode]] = _Modes()

__all__ = ["HOSTFILE", "MESSAGES", "MODES", "Group", "Launch", "Mode", "Options", "Place", "Shape"]
