"""What `slurm-plugin experiment` writes for others: files of trials, TensorBoard's event files, the page."""

import json
import os
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from slurm_plugin.errors import MissingError, SlurmPluginError, printable
from slurm_plugin.experiment import journal, trial_input
from slurm_plugin.experiment.file import loader
from slurm_plugin.experiment.metrics import LOG
from slurm_plugin.experiment.simulate import preview
from slurm_plugin.logs import diagnosis, library
from slurm_plugin.logs.diagnosis import form
from slurm_plugin.records import diagnoses, search_space
from slurm_plugin.records.experiments import FAILED, SOURCE, Experiment, State, Trial
from slurm_plugin.spec import submit_config
from slurm_plugin.views.experiment.page import Beside
from slurm_plugin.views.experiment.series import VALIDATION, Series

MOST_DIAGNOSED: Final = 100  # failed trials whose logs are diagnosed
DIAGNOSED_BYTES: Final = 1 << 20  # of each of these logs
DIAGNOSED_S: Final = 20.0  # for all of them together


def of_trial(directory: Path, trial: Trial) -> dict[str, str]:
    """Return where the log and the newest checkpoint of a trial are; empty if they are missing."""
    own = journal.trial_directory(directory, trial.number)
    name = max(trial.checkpoints, key=lambda each: each[1])[0] if trial.checkpoints else ""
    paths = {"log": own / LOG, "checkpoint": own / trial_input.CHECKPOINTS / name}
    return {kind: str(path) if path.exists() and (name or kind == "log") else "" for kind, path in paths.items()}


def commands(directory: Path, experiment: Experiment, trials: Sequence[Trial]) -> dict[int, str]:
    """Return trial -> its command for a shell, with its values; empty if the submitted file cannot be read now."""
    job: Mapping[str, Any] = {}
    with suppress(SlurmPluginError):
        job = loader.load(directory / SOURCE, submit_config.load(), program=False).job
    return {each.number: _command(job.get("command", ""), directory, experiment, each) for each in trials}


def _command(command: str, directory: Path, experiment: Experiment, trial: Trial) -> str:
    """Return a command for a shell. If it names no value, the variables with the values are before it."""
    first, *rest = trial_input.command([command], experiment, trial, escaped=False)
    line = " ".join([first, *map(shlex.quote, rest)])
    if line != command or not command:
        return line if command else ""
    values = trial_input.environment(directory, trial, {}).items()
    return " ".join(
        [*(f"{name}={shlex.quote(each)}" for name, each in values if name.startswith(search_space.HP)), line]
    )


def page_extras(directory: Path, experiment: Experiment, state: State, page: Path | None) -> Beside:
    """Return what the page shows beside the records. `page`: where it will be; None: not known."""

    def link(number: int) -> str:
        path = journal.trial_directory(directory, number) / LOG
        if not path.is_file():
            return ""
        return quote(os.fsencode(os.path.relpath(path, page.absolute().parent))) if page else path.absolute().as_uri()

    rungs: set[float] = set()
    with suppress(SlurmPluginError):
        rungs = {rung for each in preview(experiment)["brackets"] for rung in each["rungs"]}
    return Beside(str(directory), link, sorted(rungs), _diagnosed(directory, state.trials))


def _diagnosed(directory: Path, trials: Sequence[Trial]) -> Mapping[int, Sequence[str]]:
    """Return failed trial -> lines on why, from the logs of the newest ones."""
    found, signatures = {}, None
    deadline = time.monotonic() + DIAGNOSED_S
    for each in [one for one in trials if one.state == FAILED][-MOST_DIAGNOSED:]:
        path, left = journal.trial_directory(directory, each.number) / LOG, deadline - time.monotonic()
        if left <= 0 or path.is_symlink() or not path.is_file():  # a link may name a file that others may not read
            continue
        signatures = signatures or library.load()
        said = diagnosis.of_files([path], signatures, limit=DIAGNOSED_BYTES, deadline_s=left)
        if lines := diagnoses.sentences(form(said)):
            found[each.number] = lines
    return found


def tensorboard(directory: Path, trials: Sequence[Trial], series: Callable[[int], Series]) -> int:
    """Write event files with the metrics and hyperparameters of the trials. Return how many trials have one.

    Raise MissingError without tensorboard, SlurmPluginError if the directory cannot be written.
    """
    try:
        from tensorboard.compat.proto.event_pb2 import Event  # noqa: PLC0415 - optional
        from tensorboard.compat.proto.summary_pb2 import Summary  # noqa: PLC0415
        from tensorboard.plugins.hparams import summary_v2  # noqa: PLC0415
        from tensorboard.summary.writer.event_file_writer import EventFileWriter  # noqa: PLC0415
    except ImportError as error:
        raise MissingError(f"tensorboard is not installed here ({error})\n  run: pip install tensorboard") from error
    count = 0
    for trial in trials:
        own = directory / f"{trial.number:04}"
        try:
            writer = EventFileWriter(str(own))
        except OSError as error:
            raise SlurmPluginError(f"{printable(str(own))}: {error.strerror}; name another directory") from error
        values = {name: _scalar(each) for name, each in search_space.flat(trial.values).items()}
        began = trial.began or 0.0
        hyper = summary_v2.hparams_pb(values, trial_id=f"{trial.number:04}", start_time_secs=began)
        writer.add_event(Event(wall_time=began, summary=hyper))
        for (kind, name), points in series(trial.number).items():
            tag = name if kind == VALIDATION else f"{kind}/{name}"
            for each in points:
                summary = Summary(value=[Summary.Value(tag=tag, simple_value=each.value)])
                writer.add_event(Event(wall_time=each.at or began, step=round(each.length), summary=summary))
        writer.close()
        count += 1
    return count


def _scalar(value: object) -> Any:
    """Return a value that TensorBoard has a type for."""
    return value if isinstance(value, (bool, int, float, str)) else json.dumps(value)
