"""`determined.pytorch`: what a PyTorchTrial imports."""

from slurm_plugin.experiment.runner.context import PyTorchTrialContext
from slurm_plugin.experiment.runner.data import DataLoader, TorchData, data_length, to_device
from slurm_plugin.experiment.runner.interface import LRScheduler, MetricReducer, PyTorchCallback, PyTorchTrial, Reducer

__all__ = [
    "DataLoader",
    "LRScheduler",
    "MetricReducer",
    "PyTorchCallback",
    "PyTorchTrial",
    "PyTorchTrialContext",
    "Reducer",
    "TorchData",
    "data_length",
    "to_device",
]
