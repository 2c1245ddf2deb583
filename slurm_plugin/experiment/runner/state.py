"""The state of a PyTorchTrial in a checkpoint: one file, with the keys that its users know."""

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch

from slurm_plugin.errors import UsageError
from slurm_plugin.experiment.runner import torch_rank
from slurm_plugin.experiment.runner.context import PyTorchTrialContext, plain

FILE: Final = "state_dict.pth"
_PREFIX: Final = "module."  # of DDP, in checkpoints of others


def collect(context: PyTorchTrialContext, callbacks: Mapping[str, Any], epochs: Mapping[int, Any]) -> dict[str, Any]:
    """Return the state of all ranks; every rank calls this. `epochs`: of the sampler (EpochSampler.saved)."""
    ranks = context.distributed.allgather({"now": torch_rank.rng_state(), "epochs": dict(epochs)})
    found = {
        "models_state_dict": [plain(model).state_dict() for model in context.models],
        "optimizers_state_dict": [each.state_dict() for each in context.optimizers],
        "lr_schedulers_state_dict": [each.state_dict() for each in context.lr_schedulers],
        "callbacks": {name: each.state_dict() for name, each in callbacks.items()},
        "rng_state": ranks,
    }
    return found | ({"scaler_state_dict": context.scaler.state_dict()} if context.scaler else {})


def read(checkpoint: Path) -> dict[str, Any]:
    """Read the state from a checkpoint's directory. Raise UsageError if it is not there."""
    path = checkpoint / FILE
    try:
        try:
            found = torch.load(path, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError:  # a callback or an optimizer keeps objects; the file is the user's own
            found = torch.load(path, map_location="cpu", weights_only=False)
    except OSError as error:
        raise UsageError(f"{path}: {error}\n  move {checkpoint.name} away to restore an older checkpoint") from error
    return dict(found)


def of_rank(saved: Mapping[str, Any], rank: int) -> Mapping[str, Any]:
    """Return the generators' states of a rank. A rank that did not exist then takes those of rank 0."""
    ranks = saved["rng_state"]
    found: Mapping[str, Any] = ranks[rank if rank < len(ranks) else 0]
    return found


def restore(context: PyTorchTrialContext, callbacks: Mapping[str, Any], saved: dict[str, Any]) -> None:
    """Set the state of this rank. Raise UsageError if the checkpoint is of another Trial."""
    for callback in callbacks.values():
        callback.on_checkpoint_load_start(saved)
    wanted = {"models": context.models, "optimizers": context.optimizers, "lr_schedulers": context.lr_schedulers}
    for name, objects in wanted.items():
        states = saved[f"{name}_state_dict"]
        if len(states) != len(objects):
            raise UsageError(f"the checkpoint has {len(states)} {name}, the Trial wraps {len(objects)}")
        for each, state in zip(objects, states, strict=True):
            if name == "models":
                torch.nn.modules.utils.consume_prefix_in_state_dict_if_present(state, _PREFIX)
            plain(each).load_state_dict(state)
    if context.scaler and "scaler_state_dict" in saved:
        context.scaler.load_state_dict(saved["scaler_state_dict"])
    for name, callback in callbacks.items():
        if name in saved["callbacks"]:
            callback.load_state_dict(saved["callbacks"][name])
    torch_rank.set_rng_state(of_rank(saved, context.distributed.rank)["now"])
