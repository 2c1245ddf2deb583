"""The group of torch.distributed: NCCL for tensors where there are GPUs, gloo for objects and on CPUs."""

import os
from collections.abc import Callable
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
