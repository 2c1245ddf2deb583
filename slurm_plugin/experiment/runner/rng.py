"""The states of the random number generators of a rank: Python's, NumPy's where it is installed, and PyTorch's."""

import importlib.util
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch


def seed(number: int) -> None:
    """Seed all generators of this rank."""
    random.seed(number)
    torch.manual_seed(number)
    if importlib.util.find_spec("numpy"):
        import numpy as np  # noqa: PLC0415 - PyTorch works without it

        np.random.seed(number % 2**32)


def get() -> dict[str, Any]:
    """Return the states, as values that torch.load reads without unpickling."""
    found: dict[str, Any] = {"python": random.getstate(), "torch": torch.get_rng_state()}
    if torch.cuda.is_available():
        found["cuda"] = torch.cuda.get_rng_state()
    if importlib.util.find_spec("numpy"):
        import numpy as np  # noqa: PLC0415 - PyTorch works without it

        state: Any = np.random.get_state()
        name, keys, *rest = state
        found["numpy"] = (str(name), torch.tensor(keys.astype("int64")), *(float(each) for each in rest))
    return found


def put(state: Mapping[str, Any]) -> None:
    """Set the states."""
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    torch.set_rng_state(state["torch"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
    if "numpy" in state and importlib.util.find_spec("numpy"):
        import numpy as np  # noqa: PLC0415 - PyTorch works without it

        name, keys, at, has_gauss, gauss = state["numpy"]
        np.random.set_state((name, keys.numpy().astype("uint32"), int(at), int(has_gauss), gauss))


@contextmanager
def forked(state: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Restore the states at the end. `state`: begin with this one."""
    before = get()
    if state is not None:
        put(state)
    try:
        yield
    finally:
        put(before)
