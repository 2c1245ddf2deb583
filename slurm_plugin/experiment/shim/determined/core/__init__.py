"""`determined.core`: what a script of its own imports."""

from slurm_plugin.experiment.runner.core import (
    Context,
    EarlyExitReason,
    PreemptMode,
    SearcherMode,
    SearcherOperation,
    TensorboardMode,
    Unit,
    init,
)
from slurm_plugin.experiment.runner.distributed import DistributedContext

__all__ = [
    "Context",
    "DistributedContext",
    "EarlyExitReason",
    "PreemptMode",
    "SearcherMode",
    "SearcherOperation",
    "TensorboardMode",
    "Unit",
    "init",
]
