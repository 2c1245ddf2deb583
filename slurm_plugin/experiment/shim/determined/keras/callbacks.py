"""`determined.keras.callbacks`: callbacks that are saved with a checkpoint."""

from slurm_plugin.experiment.runner.keras.interface import Callback, EarlyStopping, ReduceLROnPlateau, TensorBoard

__all__ = ["Callback", "EarlyStopping", "ReduceLROnPlateau", "TensorBoard"]
