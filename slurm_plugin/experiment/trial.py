"""The script API of a trial, for any program: values in, metrics and checkpoints out. Standard library only.

    from slurm_plugin.experiment import trial

    rate = trial.hparams["lr"]                           # the values of this trial; an empty mapping outside
    model, start = build(rate), 0
    if saved := trial.checkpoint.latest():               # after a restart: the newest complete checkpoint
        start = load(model, saved)
    for step in range(start + 1, steps + 1):
        loss = train_one_step(model)
        if step % 100 == 0:
            trial.report_training(step, {"loss": loss})
            trial.report_validation(step, {"val_loss": evaluate(model)})
        if step % 1000 == 0 or trial.should_stop():      # a stop file, SIGUSR1 or SIGTERM
            save(model, trial.checkpoint.path(step))     # a new directory
            trial.checkpoint.report(step)                # from now on it is complete
            if trial.should_stop():
                break                                    # end with 0

Values that cannot work: `trial.invalid_hp()` ends the program; the trial does not count. With several ranks each may
call all of it: rank 0 alone writes. Ranks see a stop at different times, so let rank 0 ask and broadcast the answer.
Outside an experiment the reports are printed, and checkpoints are below `SLURM_PLUGIN_CHECKPOINT`, else `checkpoints`.
"""

import json
import math
import os
import re
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn

from prechecks import files
from slurm_plugin.errors import UsageError, printable

HPARAMS, METRICS, TRIAL = "SLURM_PLUGIN_HPARAMS", "SLURM_PLUGIN_METRICS", "SLURM_PLUGIN_TRIAL"
EXPERIMENT, CHECKPOINT = "SLURM_PLUGIN_EXPERIMENT", "SLURM_PLUGIN_CHECKPOINT"
STOP: Final = "stop"  # a file beside metrics.jsonl: the trial shall stop
API: Final = 1  # of the first line; the worker then waits until the program sees the stop file
COUNTS: Final = ("batches", "epochs", "records")  # how far it has trained, beside the step
# Each launcher's variable. Slurm's is last: for a launcher's ranks it counts the launchers.
_RANKS: Final = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "HOROVOD_RANK", "SLURM_PROCID")
_NAME: Final = re.compile(r"step-([0-9]{8,})", re.ASCII)

_begun: set[str] = set()  # the metrics files that have this program's first line
_signals: list[int] = []  # received signals that ask for an end
_caught: list[int] = []  # signals whose handler is installed


def __getattr__(name: str) -> Any:
    """Return `hparams`, read on use: importing this module reads no environment."""
    if name == "hparams":
        _begin()
        return values(os.environ.get(HPARAMS, ""))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@cache
def values(path: str) -> Mapping[str, Any]:
    """Return the nested hyperparameters of the file; empty without one. Raise UsageError if it cannot be read."""
    if not path:
        return {}
    try:
        found = json.loads(Path(path).read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(f"{HPARAMS}: {path}: {error}\n  the trial's task writes this file before it starts") from error
    if not isinstance(found, dict):
        raise UsageError(f"{HPARAMS}: {path}: found {type(found).__name__}, accepted is a JSON object")
    return found


def rank() -> int:
    """Return the rank of this process among those of its program; 0 for a program without ranks."""
    return next((int(value) for name in _RANKS if (value := os.environ.get(name, "")).isdecimal()), 0)


def report_training(step: int, metrics: Mapping[str, Any], **counts: float) -> None:
    """Report metrics of the training so far. `counts`: batches, epochs, records."""
    _report("training", step, metrics, counts)


def report_validation(step: int, metrics: Mapping[str, Any], **counts: float) -> None:
    """Report metrics of a validation. The search reads its metric from these. `counts`: batches, epochs, records."""
    _report("validation", step, metrics, counts)


def report_progress(fraction: float) -> None:
    """Report how much of the whole training is done, 0 to 1."""
    append({"kind": "progress", "progress": length("progress", number("progress", fraction))})


def should_stop() -> bool:
    """Return whether this trial shall save and end with 0: it was stopped, or its job ends soon.

    From the first call on, SIGUSR1 and SIGTERM do not end the program.
    """
    _begin()
    for each in (signal.SIGUSR1, signal.SIGTERM):
        if each not in _caught and threading.current_thread() is threading.main_thread():
            _catch(each, signal.getsignal(each))
    path = os.environ.get(METRICS)
    return bool(_signals) or bool(path and Path(path).with_name(STOP).exists())


def invalid_hp(why: str = "") -> NoReturn:
    """End the program with 0 and say that these hyperparameters cannot work. The trial does not count."""
    report_invalid(why)
    raise SystemExit(0)


def report_invalid(why: str = "") -> None:
    """Report that these hyperparameters cannot work. Any rank may: perhaps only one has found it."""
    append({"kind": "invalid_hp", **({"why": why} if why else {})}, of_any_rank=True)


def is_refused() -> bool:
    """Return whether a rank has reported that these hyperparameters cannot work."""
    with suppress(OSError):
        return b'"invalid_hp"' in Path(os.environ.get(METRICS, "")).read_bytes()
    return False


def tensorboard() -> Path:
    """Make and return the directory for event files of TensorBoard, in the trial's directory."""
    path = Path(os.environ.get(METRICS) or Path("metrics").absolute()).with_name("tensorboard")
    path.mkdir(parents=True, exist_ok=True)
    return path


class Checkpoints:
    """The checkpoints of this trial: directories `step-00000100`. Only complete ones have this name."""

    @property
    def directory(self) -> Path:
        """Return where they are."""
        return Path(os.environ.get(CHECKPOINT) or "checkpoints").absolute()

    def path(self, step: int) -> Path:
        """Make and return the directory into which the ranks write the checkpoint of this step."""
        path = self._partial(step)
        path.mkdir(parents=True, exist_ok=True)
        return path

    def report(self, step: int, **counts: float) -> Path:
        """Complete the checkpoint of this step, when all ranks have written it, and report it. Return its directory.

        Rank 0 gives it its name. Unfinished ones of earlier runs are removed. `counts`: as for metrics.
        """
        final, partial, far = self.directory / name(step), self._partial(step), _lengths(counts)
        if rank() == 0:
            _flush(partial)
            old = partial.with_name(f".old-{partial.name}")
            if final.exists():
                final.rename(old)
            partial.rename(final)
            for left in self.directory.glob(".*step-*"):
                shutil.rmtree(left, ignore_errors=True)
            append({"kind": "checkpoint", "name": final.name, "step": step, **far})
        return final

    def latest(self) -> Path | None:
        """Return the directory of the complete checkpoint with the highest step; None if there is none."""
        _begin()
        found = sorted((step, path) for path in self.directory.glob("step-*") if (step := step_of(path)) >= 0)
        return found[-1][1] if found else None

    def _partial(self, step: int) -> Path:
        """Return the same path in all ranks of one run, and another one in each run."""
        names = ("SLURM_JOB_ID", "SLURM_RESTART_COUNT", "SLURM_PLUGIN_ATTEMPT")
        return self.directory / f".{name(step)}-{'-'.join(os.environ.get(each) or '0' for each in names)}"


checkpoint: Final = Checkpoints()


def name(step: int) -> str:
    """Return the name of a checkpoint."""
    return f"step-{step:08d}"


def step_of(path: Path) -> int:
    """Return the step of a complete checkpoint; -1 for any other path."""
    found = _NAME.fullmatch(path.name)
    return int(found[1]) if found and path.is_dir() else -1


def number(name: str, value: Any) -> float:
    """Return a metric's value as a number, also that of a tensor or array with one element. Raise UsageError."""
    try:
        found = value.item() if hasattr(value, "item") else value
        if isinstance(found, int | float):
            return found + 0  # True is 1
    except (RuntimeError, ValueError, TypeError):
        pass
    raise UsageError(f"metric {name}: found {type(value).__name__}, accepted is a number; report one value for a name")


def append(line: Mapping[str, Any], *, of_any_rank: bool = False) -> None:
    """Append a line to the metrics file; print it outside an experiment. A full disk ends no program."""
    if rank() and not of_any_rank:
        return
    if path := os.environ.get(METRICS):
        _begin()
        _write(path, line)
    elif not rank():
        show(line)


def show(line: Mapping[str, Any]) -> None:
    """Print a line: `validation step=100 loss=0.3`."""
    shown = {**line, **line.get("metrics", {})}
    shown.pop("metrics", None)
    kind = shown.pop("kind")
    words = (f"{name}={value:.6g}" if isinstance(value, float) else f"{name}={value}" for name, value in shown.items())
    print(printable(" ".join((kind, *words))), flush=True)


def _report(kind: str, step: int, metrics: Mapping[str, Any], counts: Mapping[str, float]) -> None:
    if unknown := sorted(counts.keys() - set(COUNTS)):
        raise TypeError(f"{', '.join(unknown)}: accepted beside the metrics are {', '.join(COUNTS)}")
    found = {str(name): finite(number(str(name), value)) for name, value in metrics.items()}
    append({"kind": kind, "step": int(length("step", step)), "metrics": found, **_lengths(counts)})


def _lengths(counts: Mapping[str, float]) -> dict[str, float]:
    """Return the counts. Raise ValueError if one is infinite or NaN."""
    return {name: length(name, value) for name, value in counts.items()}


def length(name: str, value: float) -> float:
    """Return how far a trial has trained. Raise ValueError if it is infinite or NaN."""
    if not isinstance(value, int) and not math.isfinite(value):
        raise ValueError(f"{name}: found {value}, accepted is a finite number")
    return value


def finite(value: float) -> float | None:
    """Return a number that JSON has; None for infinite and NaN, which count as the worst value."""
    return value if math.isfinite(value) else None


def _begin() -> None:
    """Write this program's first line, once."""
    path = os.environ.get(METRICS)
    if path and path not in _begun and not rank():
        _begun.add(path)
        _write(path, {"kind": "start", "api": API})


def _write(path: str, line: Mapping[str, Any]) -> None:
    try:
        write(path, line)
    except OSError as error:
        print(f"[slurm_plugin] {path}: {error}: this report is lost: {line}", file=sys.stderr)


def write(path: str, line: Mapping[str, Any]) -> None:
    """Append a line to a metrics file. Raise OSError if it cannot be written."""
    files.append(path, json.dumps({**line, "at": round(time.time(), 3)}, allow_nan=False) + "\n")


def _catch(number: int, before: Callable[[int, FrameType | None], Any] | int | signal.Handlers | None) -> None:
    def handler(number: int, frame: FrameType | None) -> None:
        _signals.append(number)
        if callable(before):
            before(number, frame)

    _caught.append(number)
    signal.signal(number, handler)


def _flush(directory: Path) -> None:
    """Write the files of a directory to the disk: a checkpoint with a complete name has complete files."""
    for path in (*directory.rglob("*"), directory):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            continue
        file = os.open(path, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)
