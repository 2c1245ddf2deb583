"""DeepSpeed: stub until the facts are there."""

from slurm_plugin.modes.pytorch import PyTorch


class DeepSpeed(PyTorch):
    """Mode `deepspeed`."""
