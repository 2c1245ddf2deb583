"""The modes: one small module each. Also runs on nodes: standard library only."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from slurm_plugin.modes.base import Launch, Mode, Shape
from slurm_plugin.modes.openmpi import OpenMpi
from slurm_plugin.modes.pytorch import PyTorch

MODES: Final[Mapping[str, Mode]] = MappingProxyType({"openmpi": OpenMpi(), "pytorch": PyTorch()})

__all__ = ["MODES", "Launch", "Mode", "Shape"]
