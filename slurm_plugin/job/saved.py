"""The launch as it was made, `launch.json` in the job's own directory: what `slurm-plugin shell` opens a shell in.

It holds the launch's whole environment, so it is its user's alone (0600), and it is taken from nobody else.
"""

import itertools
import json
import os
import stat
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from slurm_plugin.decide import Phase
from slurm_plugin.errors import SlurmPluginError
from slurm_plugin.job import itself, taskfile
from slurm_plugin.job.prepare import Preparation

FILE: Final = "launch.json"
VERSION: Final = 2
MOST_BYTES: Final = 8 << 20  # an environment and an argument list have 2 MiB together (execve(2)), here escaped
_SLURMS: Final = ("SLURM_", "SLURMD_")
# What is the whole job's among Slurm's variables (OUTPUT ENVIRONMENT VARIABLES in sbatch(1)). All others are a step's
# or a node's: in a shell, an srun would take itself for a part of a step that is long over.
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
_NEVER: Final = frozenset({"SLURM_PLUGIN_LAUNCH", "SLURM_JOB_GPUS"})  # our own step's; the first node's


class SavedError(SlurmPluginError):
    """No launch of the job can be read here (exit 1)."""


class Saved(NamedTuple):
    """A launch."""

    job: int
    restart: int  # Slurm's count for this run
    attempt: int
    phase: Phase
    state: str  # running, ended, failed
    code: int | None  # once it has ended, as a shell gives it
    nodes: tuple[str, ...]  # worker-0, worker-1 ...
    firsts: tuple[int, ...]  # the number of the launch's first task on each of them
    groups: tuple[tuple[str, ...], ...]  # of a heterogeneous job, the nodes of each
    cwd: str
    words: tuple[str, ...]  # the user's command
    argv: tuple[str, ...]  # what was started for it on the first node
    environ: Mapping[str, str]
    slurm_plugin: tuple[str, ...]  # how our own commands are called on the nodes
    run_directory: str
    node_directory: str
    inside: tuple[str, ...] = ()  # what stands in `argv` before the program, as it runs in a container
    step: tuple[str, ...] = ()  # options by which an srun has its task in that container
    told: str = ""  # lines of sh that print what differs from task to task, where no TaskProlog says it

    @property
    def own_step(self) -> bool:
        """Whether the launch is an srun of ours, whose tasks TaskProlog tells what makes them differ."""
        return self.argv[0] == "srun" and self.argv != self.words

    def group(self, worker: int) -> int | None:
        """The group of a heterogeneous job in which this worker is; None in any other job."""
        return next((number for number, names in enumerate(self.groups) if self.nodes[worker] in names), None)

    @property
    def contained(self) -> bool:
        """Whether the program runs in a container."""
        return bool(self.inside or self.step)

    def here(self, worker: int) -> tuple[str, ...]:
        """The words that start the command on this worker alone, in its container where it has one.

        Empty where it was started on the first one only.
        """
        if not self.own_step:
            alone = self.argv[: len(self.inside)] == self.inside  # else they are a launcher's own, which stands outside
            return () if worker or not alone else self.argv[len(self.inside) :]
        rest = 1
        while self.argv[rest].startswith(("-", ":")):  # every option of modes.step has its value behind `=`
            rest += 1
        words = self.argv[rest:]
        return words[len(self.inside) :] if words[: len(self.inside)] == self.inside else words


class Keeper:
    """Writes the file for the launches of one run. A file that cannot be written costs no job: `say` gets a line."""

    def __init__(self, directory: Path, preparation: Preparation, say: Callable[[str], None]) -> None:
        self._directory, self._preparation, self._say = directory, preparation, say
        self._fields: dict[str, Any] = {}

    def begins(self, phase: Phase, environ: Mapping[str, str]) -> None:
        """A launch in this environment, or (`hook`) what stands before it."""
        made = self._preparation
        ranks = made.own_step and made.options.launch == "task"
        tasks = [host.slots if ranks else 1 for host in made.run.allocation.hosts]
        container = made.container
        self._fields = {
            "v": VERSION,
            "job": made.run.job_id,
            "restart": made.run.restart,
            "attempt": int(environ["SLURM_PLUGIN_ATTEMPT"]),
            "phase": phase,
            "state": "running",
            "code": None,
            "start": time.time(),
            "nodes": made.run.nodes,
            "firsts": [0, *itertools.accumulate(tasks[:-1])],
            "groups": made.run.groups,
            "cwd": str(Path.cwd()),
            "words": made.words,
            "argv": made.launch(environ).argv,
            "environ": of_the_job(environ),
            "slurm_plugin": itself.command(),
            "run_directory": made.site["run_directory"],
            "node_directory": made.node_directory,
            "inside": container.inside(()) if container else (),
            "step": container.step if container else (),
            "told": container.told if container else "",
        }
        self._write()

    def ended(self, code: int) -> int:
        """How it ended; returns the code."""
        self._fields |= {"state": "failed" if code else "ended", "code": code}
        self._write()
        return code

    def _write(self) -> None:
        try:
            taskfile.write(str(self._directory), FILE, json.dumps(self._fields))
        except OSError as error:
            self._say(f"could not keep the launch for slurm-plugin shell: {error}")


def of_the_job(environ: Mapping[str, str]) -> dict[str, str]:
    """An environment without what Slurm set for one step or one node."""
    return {name: value for name, value in environ.items() if not name.startswith(_SLURMS) or _is_the_jobs(name)}


def _is_the_jobs(name: str) -> bool:
    return name not in _NEVER and (name in _JOBS_TOO or name.startswith(_JOBS))


def read(directory: Path) -> Saved:
    """The last launch of the job with this directory. Raises SavedError where there is none of the caller's own."""
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
        raise SavedError(f"{path}: it is not as we wrote it: {error}") from error
    return _of(fields, path)


def _of(fields: Any, path: Path) -> Saved:
    try:
        if fields["v"] == 1:  # of a job that began before
            tasks = int(fields["tasks"])
            fields = {**fields, "firsts": [tasks * each for each in range(len(fields["nodes"]))], "groups": ()}
        elif fields["v"] != VERSION:
            raise SavedError(f"{path}: of version {fields['v']}; accepted: 1, {VERSION}")
        fields = {"inside": (), "step": (), "told": "", **fields}  # of a version without containers
        lists = ("nodes", "words", "argv", "slurm_plugin", "inside", "step")
        texts = {name: tuple(map(str, fields[name])) for name in lists}
        environ = {str(name): str(value) for name, value in fields["environ"].items()}
        firsts = tuple(map(int, fields["firsts"]))
        groups = tuple(tuple(map(str, names)) for names in fields["groups"])
        others = (*texts, "environ", "firsts", "groups")
        same: dict[str, Any] = {name: fields[name] for name in Saved._fields if name not in others}
        return Saved(**same | texts, environ=environ, firsts=firsts, groups=groups)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise SavedError(f"{path}: it is not as we wrote it: {error!r}") from error


def worker(nodes: tuple[str, ...], name: str) -> int | None:
    """The number of the worker that `worker-1` or a node's name means; None where there is none."""
    if name in nodes:
        return nodes.index(name)
    number = name.removeprefix("worker-")
    found = int(number) if name != number and number.isdecimal() and number.isascii() and len(number) < 7 else -1
    return found if 0 <= found < len(nodes) else None


def workers(nodes: tuple[str, ...]) -> list[str]:
    """Every worker's name with its node, as lines."""
    return [f"worker-{number} is {node}" for number, node in enumerate(nodes)]
