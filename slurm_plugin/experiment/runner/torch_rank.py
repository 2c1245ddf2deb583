"""PyTorch on one rank: its process group, its device, and the states of its random number generators.

The group has NCCL for tensors where there are GPUs, and gloo for objects and on CPUs.
"""

import importlib.util
import os
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist


def start() -> tuple[Callable[[Any], list[Any]] | None, Callable[[], None]]:
    """Make the group of all ranks. Return a function that gathers objects of all ranks, and one that leaves the group.

    For one rank there is no group: None, and a function that does nothing.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 and not dist.is_initialized():
        return None, lambda: None
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    if not dist.is_initialized():
        dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    objects = dist.new_group(backend="gloo")  # NCCL would move each object through a GPU

    def allgather(stuff: Any) -> list[Any]:
        found: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(found, stuff, group=objects)
        return found

    def leave() -> None:
        if dist.is_initialized():
            dist.barrier(objects)  # a rank that leaves early closes connections that others still use
            end()

    return allgather, leave


def end() -> None:
    """Leave the group without the others, which get an error if they wait for this rank."""
    if dist.is_initialized():
        dist.destroy_process_group()  # otherwise gloo's threads sometimes abort the process at its end


def device() -> torch.device:
    """Return the device of this rank."""
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def seed(number: int) -> None:
    """Seed all generators of this rank."""
    random.seed(number)
    torch.manual_seed(number)
    if importlib.util.find_spec("numpy"):
        import numpy as np  # noqa: PLC0415 - PyTorch works without it

        np.random.seed(number % 2**32)


def rng_state() -> dict[str, Any]:
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


def set_rng_state(state: Mapping[str, Any]) -> None:
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
def forked_rng(state: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Restore the states at the end. `state`: begin with this one."""
    before = rng_state()
    if state is not None:
        set_rng_state(state)
    try:
        yield
    finally:
        set_rng_state(before)
