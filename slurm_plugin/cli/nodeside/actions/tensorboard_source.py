"""What TensorBoard shows of jobs, arrays and experiments, and the running job on whose node it starts."""

import re
import shlex
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

from slurm_plugin.cli.nodeside import job_lookup
from slurm_plugin.cli.nodeside.actions import control
from slurm_plugin.cli.nodeside.actions.control import Worker
from slurm_plugin.cli.nodeside.job_lookup import NotRunningError
from slurm_plugin.errors import MissingError, SlurmPluginError, printable
from slurm_plugin.records import experiments, job_directory, launch_record
from slurm_plugin.slurm import Slurm

MOST_TRIED: Final = 5  # try at most this many running tasks as the place for TensorBoard
MOST_READ: Final = 64  # look up the directories of at most this many tasks; a batch has the others beside them
_TASK_DIRECTORY: Final = "SLURM_PLUGIN_TASK_DIRECTORY"  # of one of `tasks`, see templates/job/base.sh.j2
_NAME: Final = re.compile(r"^-+|[^\w.+@-]+", re.ASCII)  # characters that a name in TensorBoard must not have


class Source(NamedTuple):
    """Directories by name, and the jobs that may run TensorBoard."""

    directories: tuple[tuple[str, str], ...]
    jobs: tuple[str, ...]


def find(words: Sequence[str], worker: str, logdir: str) -> tuple[Worker, tuple[str, ...]]:
    """Return the worker on which TensorBoard starts, and what it shows: NAME=PATH, for a single directory =PATH.

    Raise SlurmPluginError if no job of `words` runs, or none is this user's.
    """
    door = job_lookup.door_to_slurm()
    found = [_of_job(word, door) if job_lookup.is_job(word) else _of_experiment(word) for word in words]
    directories = {path: name for each in found for name, path in each.directories}
    shows = (f"={logdir}",) if logdir else _named(directories)
    problem: SlurmPluginError | None = None
    for word in [job for each in found for job in each.jobs][:MOST_TRIED]:
        try:
            return control.worker(word, worker), shows
        except SlurmPluginError as error:
            problem = problem or error
    where = printable(shlex.quote(next(iter(directories), "DIR")))
    said = str(problem).partition("\n")[0] if problem else "none of its tasks runs now"
    raise NotRunningError(
        f"{said}\n  for TensorBoard in a job of its own: slurm-plugin open --new SPEC tensorboard --logdir {where}"
    )


def _named(directories: dict[str, str]) -> tuple[str, ...]:
    """Return the directories as `job open` takes them. Of two with the same name, the later one gets a number."""
    if len(directories) == 1:
        return (f"={next(iter(directories))}",)
    names: dict[str, str] = {}
    for path, name in directories.items():
        short = _NAME.sub("_", name)[:100]
        names[short if short not in names else f"{short}.{len(names)}"] = path
    return tuple(f"{name}={path}" for name, path in names.items())


def _of_experiment(word: str) -> Source:
    """Return the directory of an experiment's trials. Raise SlurmPluginError if there is no such experiment."""
    try:
        from slurm_plugin.experiment import array, journal  # noqa: PLC0415 - nodes lack the register
    except ModuleNotFoundError as error:
        raise MissingError(f"experiments: {error.name} is not installed here\n  pip install slurm_plugin") from error
    directory = array.find_experiment(word)
    trials = journal.Journal(directory).read().trials
    jobs = [str(each.job) for each in trials if each.state == experiments.RUNNING and each.job]
    return Source(((directory.name, str(directory / experiments.TRIALS)),), tuple(dict.fromkeys(jobs)))


def _of_job(word: str, door: Slurm) -> Source:
    """Return the directory of a job, or those of the tasks of an array."""
    number = job_lookup.job_number(word, door, Path())
    members = job_lookup.array_tasks(door, number) if word.isdecimal() else {}
    if not members:
        path = _directory(door, number)
        return Source(((path.name, str(path)),), (word,))
    with suppress(SlurmPluginError):  # no experiment has this array
        return _of_experiment(word)
    tasks = door.jobs(list(members.values()))
    known = [path for each in list(tasks)[:MOST_READ] if (path := _directory(door, each))]
    found = dict.fromkeys(chain(*(_siblings(path, job.name) for path, job in zip(known, tasks.values(), strict=False))))
    jobs = tuple(str(job.id) for job in tasks.values() if job.state == "RUNNING")
    return Source(tuple((path.name, str(path)) for path in found), jobs)


def _directory(door: Slurm, job_id: int) -> Path:
    """Return the directory in which a job's program runs, or ran; its working directory if it was not launched."""
    workdir = job_lookup.work_directory(door, job_id) or Path()
    with suppress(SlurmPluginError):
        launch = launch_record.read(workdir / job_directory.OURS / str(job_id))
        return Path(launch.environ.get(_TASK_DIRECTORY) or launch.cwd)
    return workdir


def _siblings(path: Path, name: str) -> list[Path]:
    """Return the directories NAME-INDEX of all tasks of a batch, also of those that Slurm has forgotten."""
    own = re.compile(rf"{re.escape(name)}-[0-9]{{1,10}}", re.ASCII)
    if not own.fullmatch(path.name):
        return [path]
    try:
        return sorted(each for each in path.parent.iterdir() if own.fullmatch(each.name)) or [path]
    except OSError:
        return [path]
