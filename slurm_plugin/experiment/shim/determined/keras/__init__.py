"""`determined.keras`: what a TFKerasTrial imports."""

from determined.keras import callbacks
from slurm_plugin.experiment.runner.keras.interface import (
    ArrayLike,
    InputData,
    SequenceAdapter,
    TensorBoard,
    TFKerasTrial,
    TFKerasTrialContext,
)

TFKerasTensorBoard = TensorBoard
__all__ = [
    "ArrayLike",
    "InputData",
    "SequenceAdapter",
    "TFKerasTensorBoard",
    "TFKerasTrial",
    "TFKerasTrialContext",
    "TensorBoard",
    "callbacks",
]
