"""The record of a job's last launch, `launch.json` in the job's directory, for `slurm-plugin shell`.

The file contains the launch's whole environment. Only the job's user can read it (0600). A file that another user owns
is refused.
"""

import json
import os
import stat
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from prechecks import files
from slurm_plugin.errors import SlurmPluginError
from slurm_plugin.records.job_plan import tuples

FILE: Final = "launch.json"
VERSION: Final = 2
MOST_BYTES: Final = 8 << 20  # execve(2) limits environment and arguments to 2 MiB; JSON escapes make them longer
_SLURMS: Final = ("SLURM_", "SLURMD_")
# Slurm's variables that hold for the whole job (OUTPUT ENVIRONMENT VARIABLES in sbatch(1)). All others belong to a step
# or a node: with them, an srun in the shell would believe that it is part of a step that has ended.
_JOBS: Final = (
    "SLURM_PLUGIN_", "SLURM_JOB_", "SLURM_ARRAY_", "SLURM_SUBMIT_", "SLURM_NTASKS", "SLURM_MEM_PER_", "SLURM_GPUS_PER_",
)  # fmt: skip
_JOBS_TOO: Final = frozenset(
    f"SLURM_{name}"
    for name in (
        *("CLUSTER_NAME", "CONF", "CPUS_PER_TASK", "JOBID", "NNODES", "NODELIST", "NPROCS", "RESTART_COUNT"),
        *("TASKS_PER_NODE", "WORKING_CLUSTER"),
    )
)
_NEVER: Final = frozenset({"SLURM_PLUGIN_LAUNCH", "SLURM_JOB_GPUS"})  # only of our own step; only of the first node


class SavedError(SlurmPluginError):
    """The job's launch record cannot be read here (exit 1)."""


def plugin_step(argv: tuple[str, ...], words: tuple[str, ...]) -> bool:
    """Return whether slurm_plugin's own srun starts the tasks. `argv`: the launch; `words`: the user's command."""
    return argv[0] == "srun" and argv != words


class Saved(NamedTuple):
    """The record of one launch."""

    job: int
    restart: int  # Slurm's restart count of this run
    attempt: int
    phase: str  # slurm_plugin.supervisor.decide.Phase
    state: str  # running, ended, failed
    code: int | None  # the exit code as a shell reports it; None until the launch has ended
    nodes: tuple[str, ...]  # the nodes of worker-0, worker-1 ...
    firsts: tuple[int, ...]  # for each node, the number of the launch's first task there
    groups: tuple[tuple[str, ...], ...]  # the nodes of each group of a heterogeneous job
    cwd: str
    words: tuple[str, ...]  # the user's command
    argv: tuple[str, ...]  # the process that the supervisor started for it on the first node
    environ: Mapping[str, str]
    slurm_plugin: tuple[str, ...]  # the words that call slurm-plugin on the nodes
    run_directory: str
    node_directory: str
    inside: tuple[str, ...] = ()  # the words in `argv` that start the container, before the program
    step: tuple[str, ...] = ()  # srun options that start a task in that container
    told: str = ""  # lines of sh that print the variables of a task if TaskProlog cannot (pyxis)

    @property
    def plugin_step(self) -> bool:
        """Whether the launch is an srun that slurm_plugin built. TaskProlog then sets the variables of each task."""
        return plugin_step(self.argv, self.words)

    def group(self, worker: int) -> int | None:
        """Return the number of the group that this worker is in; None if the job is not heterogeneous."""
        return next((number for number, names in enumerate(self.groups) if self.nodes[worker] in names), None)

    @property
    def contained(self) -> bool:
        """Whether the program runs in a container."""
        return bool(self.inside or self.step)

    def here(self, worker: int) -> tuple[str, ...]:
        """Return the words that start the command on this worker only, inside the container if the launch has one.

        Empty if a launcher on the first worker starts the command on this worker.
        """
        if not self.plugin_step:
            alone = self.argv[: len(self.inside)] == self.inside  # else a launcher starts the container
            return () if worker or not alone else self.argv[len(self.inside) :]
        rest = 1
        while self.argv[rest].startswith(("-", ":")):  # every option that slurm_plugin adds has its value after `=`
            rest += 1
        words = self.argv[rest:]
        return words[len(self.inside) :] if words[: len(self.inside)] == self.inside else words


class Keeper:
    """Writes the record of each launch of a run. If that fails, the job goes on and `say` logs it."""

    def __init__(self, directory: Path, say: Callable[[str], None]) -> None:
        self._directory, self._say = directory, say
        self._fields: dict[str, Any] = {}

    def begins(self, launch: Saved) -> None:
        """Write the record of a launch that is about to start."""
        self._fields = {"v": VERSION, **launch._asdict(), "start": time.time()}
        self._write()

    def ended(self, code: int) -> int:
        """Add the exit code of the launch, and return that code."""
        self._fields |= {"state": "failed" if code else "ended", "code": code}
        self._write()
        return code

    def _write(self) -> None:
        try:
            files.replace(self._directory / FILE, json.dumps(self._fields), mode=0o600)
        except OSError as error:
            self._say(f"could not keep the launch for slurm-plugin shell: {error}")


def of_the_job(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without what Slurm set for one step or one node."""
    return {name: value for name, value in environ.items() if not name.startswith(_SLURMS) or _is_the_jobs(name)}


def _is_the_jobs(name: str) -> bool:
    return name not in _NEVER and (name in _JOBS_TOO or name.startswith(_JOBS))


def read(directory: Path) -> Saved:
    """Read the last launch from a job's directory. Raise SavedError if the caller owns no readable record."""
    path = directory / FILE
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, encoding="utf-8") as file:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
                raise SavedError(f"{path}: it is not yours, and only the job's owner can use it")
            fields = json.loads(file.read(MOST_BYTES))
    except OSError as error:
        raise SavedError(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise SavedError(f"{path}: its content is not valid: {error}") from error
    return _launch(fields, path)


def _launch(fields: Any, path: Path) -> Saved:
    try:
        if fields["v"] != VERSION:
            raise SavedError(f"{path}: of version {fields['v']}; accepted: {VERSION}")
        return Saved(**{name: tuples(fields[name]) for name in Saved._fields})
    except (LookupError, TypeError) as error:
        raise SavedError(f"{path}: its content is not valid: {error!r}") from error


def worker(nodes: tuple[str, ...], name: str) -> int | None:
    """Return the number of a worker, given as `worker-1` or as a node's name; None if there is no such worker."""
    if name in nodes:
        return nodes.index(name)
    number = name.removeprefix("worker-")
    found = int(number) if name != number and number.isdecimal() and number.isascii() and len(number) < 7 else -1
    return found if 0 <= found < len(nodes) else None


def workers(nodes: tuple[str, ...]) -> list[str]:
    """Return every worker's name with its node, as lines."""
    return [f"worker-{number} is {node}" for number, node in enumerate(nodes)]
