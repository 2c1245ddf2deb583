"""The modes: one small module each. Also runs on nodes: standard library only."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from slurm_plugin.modes.ascend import Ascend
from slurm_plugin.modes.base import HOSTFILE, Launch, Mode, Options, Place, Shape
from slurm_plugin.modes.deepspeed import DeepSpeed
from slurm_plugin.modes.horovod import Horovod
from slurm_plugin.modes.intelmpi import IntelMpi
from slurm_plugin.modes.mpich import Mpich
from slurm_plugin.modes.openmpi import OpenMpi
from slurm_plugin.modes.pytorch import PyTorch
from slurm_plugin.modes.script import Script
from slurm_plugin.modes.single import Single
from slurm_plugin.modes.tensorflow import TensorFlow

MODES: Final[Mapping[str, Mode]] = MappingProxyType(
    {
        "single": Single(),
        "openmpi": OpenMpi(),
        "mpich": Mpich(),
        "intelmpi": IntelMpi(),
        "horovod": Horovod(),
        "pytorch": PyTorch(),
        "deepspeed": DeepSpeed(),
        "tensorflow": TensorFlow(),
        "ascend": Ascend(),
        "script": Script(),
    }
)

__all__ = ["HOSTFILE", "MODES", "Launch", "Mode", "Options", "Place", "Shape"]
