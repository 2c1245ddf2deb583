"""`python -m slurm_plugin.experiment.runner MODULE:CLASS`: run a Trial class, as each task of a job does.

A PyTorchTrial runs with `mode: pytorch`, a TFKerasTrial with `mode: tensorflow`.
Exit codes: 0 done, stopped, or hyperparameters refused; 1 an error; 2 wrong usage; 3 a package is missing.
"""

import contextlib
import importlib
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any, Final

from slurm_plugin.errors import MissingError, SlurmPluginError, UsageError
from slurm_plugin.experiment import trial
from slurm_plugin.experiment.file import entrypoint
from slurm_plugin.experiment.file.entrypoint import KERAS, PYTORCH
from slurm_plugin.experiment.runner import settings
from slurm_plugin.experiment.runner.settings import Settings

SHIM: Final = Path(__file__).parents[1] / "shim"  # holds the package `determined`
KERAS_START: Final = "slurm_plugin.experiment.runner.keras.start"


def main(args: list[str]) -> int:
    """Run the Trial class that is named, or the experiment's, and return the exit code."""
    try:
        if len(args) > 1 or args[:1] in (["-h"], ["--help"]):
            print(__doc__)
            return 0 if len(args) == 1 else UsageError.exit_code
        found = settings.load(args[0] if args else "")
        offer_determined()
        return keras(found) if (found.framework or framework(found.entrypoint)) == KERAS else pytorch(found)
    except SlurmPluginError as error:
        print(f"[slurm_plugin] error: {error}", file=sys.stderr)
        return error.exit_code


def offer_determined() -> None:
    """Make a package `determined` importable, if the real one is not installed: also for programs started from here."""
    if importlib.util.find_spec("determined") is None:
        sys.path.append(str(SHIM))
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(SHIM))))


def framework(trial_class: str) -> str:
    """Return the framework of `module:Class` by its base classes; PyTorch if they do not say."""
    with contextlib.suppress(ValueError):
        return entrypoint.program([trial_class], Path.cwd()).framework
    return PYTORCH


def pytorch(found: Settings) -> int:
    """Run a PyTorchTrial on this rank."""
    try:
        from torch.distributed.elastic.multiprocessing.errors import record  # noqa: PLC0415 - only PyTorch's ranks have it
    except ImportError as error:
        raise MissingError("a PyTorchTrial needs PyTorch: pip install torch") from error
    return int(record(_pytorch)(found))


def _pytorch(found: Settings) -> int:
    from slurm_plugin.experiment.runner import loop, torch_rank  # noqa: PLC0415 - only PyTorch's ranks
    from slurm_plugin.experiment.runner.distributed import DistributedContext  # noqa: PLC0415 - only PyTorch's ranks

    trial.should_stop()  # from now on a signal to save does not end this rank
    with DistributedContext.from_torch_distributed() as distributed:
        torch_rank.seed(found.seed)  # before the Trial's module: one that seeds by itself has its own way
        make = load_class(found.entrypoint)
        try:
            loop.run(make, found, distributed)
        except _invalid_hp() as error:
            trial.report_invalid(str(error))
            torch_rank.end()  # other ranks may wait for this one
            print(f"[slurm_plugin] invalid hyperparameters: {error}", flush=True)
        except RuntimeError:  # what a rank gets from PyTorch if another one has left
            if distributed.size == 1 or not trial.is_refused():
                raise
            torch_rank.end()
            print("[slurm_plugin] another rank has found invalid hyperparameters", flush=True)
    return 0


def keras(found: Settings) -> int:
    """Run a TFKerasTrial on this rank."""
    code: int = importlib.import_module(KERAS_START).main(found, load_class)
    return code


def load_class(entrypoint: str) -> Any:
    """Import and return the class of `module:Class`. Raise UsageError if it does not exist."""
    module, _, name = entrypoint.partition(":")
    if not module or not name:
        raise UsageError(f"entrypoint: found {entrypoint!r}, accepted is MODULE:CLASS, as in model_def:MyTrial")
    try:
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise UsageError(f"entrypoint: there is no {module}.py in {Path.cwd()}, nor such a package") from error
    except AttributeError as error:
        raise UsageError(f"entrypoint: {module} has no class {name}") from error


def _invalid_hp() -> type[Exception]:
    found: type[Exception] = importlib.import_module("determined").InvalidHP
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
