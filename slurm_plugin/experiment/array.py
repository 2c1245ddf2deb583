"""The array job of an experiment: its directory, how many tasks it has, its submission, and the register of all.

Each task of the array takes trials one after the other, so fewer tasks than trials are enough. Standard library only.
"""

import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from prechecks import files
from slurm_plugin.errors import SlurmPluginError, UsageError, printable
from slurm_plugin.experiment import journal
from slurm_plugin.experiment.searchers import simple
from slurm_plugin.records import job_directory
from slurm_plugin.records.experiments import FILE, Experiment
from slurm_plugin.slurm import Slurm, SlurmError
from slurm_plugin.slurm.batch import withdraw
from slurm_plugin.slurm.resources import Limit, array_limits

_ARRAY = re.compile(r"([0-9]{1,10})(?:_[0-9]+)?", re.ASCII)  # an array job's id, or the name of one of its tasks
MOST_BYTES: Final = 4 << 20  # the end of the register that is read: tens of thousands of submissions


class Entry(NamedTuple):
    """A submission."""

    directory: Path
    array: int


def register_path() -> Path:
    """Return the path of this user's register."""
    return job_directory.state_directory() / "experiments.jsonl"


def register(directory: Path, array: int) -> None:
    """Append a submission. Ignore a home that cannot be written: the experiment works without the register."""
    line = json.dumps({"directory": str(directory), "array": array})
    with suppress(OSError, RuntimeError):  # RuntimeError: no home
        register_path().parent.mkdir(parents=True, exist_ok=True)
        with register_path().open("ab") as file:  # one write of one line: appends of two shells do not mix
            file.write(f"{line}\n".encode())


def registered() -> Iterator[Entry]:
    """Yield the submissions, the newest first. Leave out malformed lines and directories without an experiment."""
    try:
        with register_path().open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - MOST_BYTES))
            lines = file.read(MOST_BYTES).splitlines()
    except (OSError, RuntimeError):
        return
    for line in reversed(lines):
        try:
            found = json.loads(line)
            entry = Entry(Path(found["directory"]), int(found["array"]))
        except (ValueError, TypeError, KeyError, RecursionError):
            continue
        with suppress(OSError, ValueError):
            if (entry.directory / FILE).is_file():
                yield entry


def find_experiment(word: str) -> Path:
    """Return the directory of an experiment: `word` is a directory, a directory's name, or the id of an array job.

    Raise SlurmPluginError if no directory has the name, or if several directories have the name.
    """
    given = Path(word)
    with suppress(OSError, ValueError):
        if (given / FILE).is_file():
            return given.absolute()
    found = {each.directory for each in registered() if each.directory.name == word}
    if array := _ARRAY.fullmatch(word):
        found |= {each.directory for each in registered() if each.array == int(array[1])}
    if len(found) == 1:
        return found.pop()
    shown = printable(word)
    if found:
        listed = "".join(f"\n    {printable(str(each))}" for each in sorted(found))
        raise SlurmPluginError(f"{shown}: found {len(found)} experiments; give the directory:{listed}")
    raise SlurmPluginError(
        f"{shown}: found no such experiment; accepted: its directory, the directory's name, or its array's job id\n"
        "  yours are: slurm-plugin experiment list"
    )


SCRIPT: Final = "job.sh"  # in the experiment's directory; submitted again for what is left of the budget
CLUSTER: Final = "cluster"  # in the experiment's directory: the name of the cluster that has its arrays
TASKS: Final = "tasks"  # the directory of the logs of the array's tasks
LOG: Final = f"{TASKS}/%A_%a.log"  # for --output; %A keeps the logs of two arrays apart
MOST_NAMES: Final = 10_000  # NAME, NAME-2, ...
# The line of SCRIPT with the job's directory (slurm_plugin.spec.sbatch_flags.directive). sbatch runs there.
_CHDIR: Final = re.compile(r'^#SBATCH --chdir="?(.+?)"?$', re.MULTILINE)
# slurmctld's errors for too many jobs; they can have other causes (slurm_errno.c, the same in 22.05 to 26.05).
_TOO_MANY: Final = ("accounting/QOS policy", "Invalid job array specification")


class Array(NamedTuple):
    """A submitted array."""

    job: int
    tasks: int


@contextmanager
def new_directory(wanted: Path | None, workdir: Path, name: str) -> Iterator[Path]:
    """Make the directory of an experiment and yield it. If the body raises, remove it again.

    `wanted`: the directory that the user named; None: `workdir/name`, or `name-2`, `name-3` if that exists. Raise
    UsageError if the named directory has files.
    """
    directory = (wanted or workdir / name).absolute()
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        directory = _empty(directory) if wanted else _free(directory)
    except OSError as error:
        raise UsageError(f"{error.filename}: {error.strerror}\n  choose another one with: --directory DIR") from error
    try:
        yield directory
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise


def _empty(directory: Path) -> Path:
    """Make this directory, or accept an empty one."""
    with suppress(FileExistsError):
        directory.mkdir()
    shown = printable(str(directory))
    if directory.is_dir() and directory.stat().st_uid != os.geteuid():  # its owner could change the values of trials
        raise UsageError(f"{shown}: it belongs to another user\n  accepted: a new directory, or an empty one of yours")
    if not directory.is_dir() or any(directory.iterdir()):
        if (directory / FILE).exists():
            raise UsageError(
                f"{shown}: found an experiment there\n  continue it: slurm-plugin experiment resume {shown}\n"
                "  or choose another directory: --directory DIR"
            )
        raise UsageError(f"{shown}: it exists and is no experiment\n  accepted: a new or an empty directory")
    return directory


def _free(directory: Path) -> Path:
    """Make the first of NAME, NAME-2, NAME-3 ... that does not exist."""
    for number in range(1, MOST_NAMES):
        found = directory.with_name(f"{directory.name}-{number}") if number > 1 else directory
        with suppress(FileExistsError):
            found.mkdir()
            return found
    raise UsageError(f"{directory}: found {MOST_NAMES - 1} with this name\n  choose another one with: --directory DIR")


def in_all(experiment: Experiment, budget: int = 0) -> int:
    """Return how many trials the search makes with this budget; 0: the budget of the search."""
    search = experiment.search
    return simple.budget(search._replace(trials=budget or search.trials), search.algorithms[0].name)


def limits(door: Slurm, user: str = "", account: str = "", qos: str = "") -> list[Limit]:
    """Return the limits on the tasks of an array. Leave out limits that cannot be read: `submit` meets them.

    Without `user`, return those of slurm.conf alone.
    """
    found = array_limits(door.config())
    with suppress(SlurmError):
        found += door.submit_limits(user, account, qos) if user else ()
    return found


def size(trials: int, found: Sequence[Limit]) -> int:
    """Return the number of tasks for this number of trials. Raise SlurmPluginError if the limits allow no task."""
    least = min(found, default=Limit(trials, ""))
    if least.most < 1:
        raise SlurmPluginError(
            f"nothing was submitted: not even one task of the array may be: found {least.text}\n"
            "  see what you have in the queue: squeue --me"
        )
    return min(trials, least.most)


def cluster(door: Slurm) -> str:
    """Return the name of this machine's cluster; "" if it is not known."""
    return door.config().get("ClusterName", "")


def words(tasks: int, concurrent: int) -> str:
    """Return the value of --array. `concurrent`: the most tasks at once; 0: no limit."""
    return f"0-{tasks - 1}" + (f"%{concurrent}" if concurrent else "")


def submit(directory: Path, script: str, tasks: int, concurrent: int, door: Slurm) -> Array:
    """Submit an array of at most `tasks` tasks, and write it into the journal and the user's register.

    If Slurm refuses the number of jobs, submit half as many: not every limit can be read. Raise SlurmError if it
    refuses one task, too, and UsageError if sbatch has chosen another cluster.
    """
    place = _CHDIR.search(script)
    workdir = place[1] if place else None
    while True:
        try:
            made = door.submit(script, arguments=(f"--array={words(tasks, concurrent)}",), directory=workdir)
            break
        except SlurmError as error:
            if tasks == 1 or not any(text in str(error) for text in _TOO_MANY):
                raise
            tasks //= 2
    job = made.id
    try:
        if made.cluster:
            raise UsageError(
                f"found cluster {made.cluster}; accepted: the cluster of this machine\n"
                "  leave out --clusters, and try: unset SBATCH_CLUSTERS SLURM_CLUSTERS"
            )
        files.replace(directory / CLUSTER, f"{cluster(door)}\n", mode=None)
        book = journal.Journal(directory)
        with book.locked():
            book.append({"e": "submitted", "array": job})
    except BaseException:
        withdraw(door, [made])  # an array that the experiment does not know would not obey `pause` and `cancel`
        raise
    register(directory, job)
    return Array(job, tasks)
