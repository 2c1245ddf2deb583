"""The files of a checkpoint of a TFKerasTrial.

`determined-keras-model.h5` is what `tf.keras.models.save_model` writes: `tf.keras.models.load_model` reads it. A model
that HDF5 cannot describe (a class derived from `Model`) has its weights alone, in `determined-keras-model.weights.h5`.
The optimizers and the callbacks have files of their own, which a restart needs.

Under MultiWorkerMirroredStrategy all ranks compute the values of some variables together, so all ranks save. Rank 0
alone keeps its files.
"""

import contextlib
import pickle
import tempfile
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import tensorflow as tf

from slurm_plugin.errors import UsageError

MODEL: Final = "determined-keras-model.h5"
WEIGHTS: Final = "determined-keras-model.weights.h5"
OPTIMIZERS: Final = "optimizers.npz"
CALLBACKS: Final = "callbacks.pkl"
RATE: Final = "learning_rate"
# Of a callback without get_state() and load_state() the plain values are kept, and these of Keras' own callbacks.
PLAIN: Final = (int, float, str, np.generic, type(None))
COUNTED: Final = ("best_weights", "history")


def save(directory: Path, model: Any, optimizers: Sequence[Any], callbacks: Iterable[Any], *, rank: int) -> None:
    """Write the files. Every rank calls it."""
    with contextlib.ExitStack() as stack:
        if rank:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        _save_model(directory, model)
        found: dict[str, Any] = {}
        for index, optimizer in enumerate(optimizers):
            found |= {f"{index}/{at}": each.numpy() for at, each in enumerate(_variables(optimizer))}
            if (rate := _rate(optimizer)) is not None:
                found[f"{index}/{RATE}"] = rate
        if not rank:
            np.savez(directory / OPTIMIZERS, **found)
            (directory / CALLBACKS).write_bytes(pickle.dumps([_state(each) for each in callbacks]))


def load(directory: Path, model: Any, optimizers: Sequence[Any]) -> None:
    """Set the weights and the optimizers. The model must have its variables. Every rank calls it."""
    path = next((path for name in (MODEL, WEIGHTS) if (path := directory / name).exists()), None)
    if not path:
        raise UsageError(f"{directory}: found neither {MODEL} nor {WEIGHTS}; it is no checkpoint of a TFKerasTrial")
    model.load_weights(str(path))
    with np.load(directory / OPTIMIZERS) as found:
        for index, optimizer in enumerate(optimizers):
            stored = [found[f"{index}/{at}"] for at in range(len(found.files)) if f"{index}/{at}" in found.files]
            _load_optimizer(optimizer, model, stored, directory)
            if f"{index}/{RATE}" in found.files:
                with contextlib.suppress(TypeError):  # it has a schedule now
                    optimizer.learning_rate = float(found[f"{index}/{RATE}"])


def load_callbacks(directory: Path, callbacks: Iterable[Any]) -> None:
    """Set the state of the callbacks. Those of another kind than in the checkpoint are left as they are."""
    states = pickle.loads((directory / CALLBACKS).read_bytes())  # noqa: S301 - this trial's own file
    for callback, (kind, state) in zip(callbacks, states, strict=False):
        if kind != type(callback).__qualname__:
            continue
        if hasattr(callback, "load_state"):
            callback.load_state(state)
        else:
            vars(callback).update(state)


def _save_model(directory: Path, model: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras recommends its newer format
        try:
            tf.keras.models.save_model(model, str(directory / MODEL), include_optimizer=False)
        except NotImplementedError:  # a class derived from Model
            (directory / MODEL).unlink(missing_ok=True)
            model.save_weights(str(directory / WEIGHTS))


def _load_optimizer(optimizer: Any, model: Any, stored: Sequence[Any], directory: Path) -> None:
    if len(_variables(optimizer)) != len(stored):
        build = getattr(optimizer, "_create_all_weights", None) or optimizer.build  # the first: of optimizers.legacy
        build(model.trainable_variables)
    variables = _variables(optimizer)
    if [tuple(each.shape) for each in variables] != [each.shape for each in stored]:
        raise UsageError(
            f"{directory / OPTIMIZERS}: found {len(stored)} variables, the optimizer has {len(variables)} "
            "or others\n  use the model and the optimizer that the checkpoint was made with"
        )
    for variable, value in zip(variables, stored, strict=True):
        variable.assign(value)


def _variables(optimizer: Any) -> list[Any]:
    """Return the variables of an optimizer of any version of Keras."""
    found = optimizer.variables
    return list(found() if callable(found) else found)


def _rate(optimizer: Any) -> Any:
    """Return the learning rate as an array; None for a schedule, which follows from the steps."""
    found: Any = getattr(optimizer, RATE, None)
    return found.numpy() if hasattr(found, "numpy") else None


def _state(callback: Any) -> tuple[str, Any]:
    kind = type(callback).__qualname__
    if hasattr(callback, "get_state"):
        return kind, callback.get_state()
    return kind, plain(callback)


def plain(callback: Any) -> dict[str, Any]:
    """Return what a callback counts: its attributes that are numbers, texts, or the weights that Keras keeps in it."""
    return {name: value for name, value in vars(callback).items() if isinstance(value, PLAIN) or name in COUNTED}
