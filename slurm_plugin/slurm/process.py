"""Run commands under one deadline, and kill their process groups when it passes. Slurm's commands raise SlurmError."""

import os
import re
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Final

from prechecks import files
from slurm_plugin.errors import MissingError
from slurm_plugin.slurm.calls import Patience, Purpose
from slurm_plugin.slurm.input_variables import INHERITED
from slurm_plugin.slurm.model import BACKEND, SlurmAwayError, SlurmError

KEPT = ("SLURM_CONF", BACKEND)  # the SLURM_ variables that choose slurm.conf and the back end
LEFT_BEHIND_S = 1.0  # the wait for the output and the exit of a killed command


@dataclass(frozen=True, slots=True)
class Command:
    """A command: `argv` with `text` on stdin, in `directory` (None: the current one), with extra variables."""

    argv: Sequence[str]
    text: str = ""
    directory: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Result:
    """The output of a command. `code` is None if it was killed at the deadline; then the output ends there.

    `session`: the number of its session.
    """

    code: int | None
    out: str
    err: str
    session: int = field(default=0, compare=False)


def wait(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait up to `seconds` for the end of a process, without polling. Return whether it has ended.

    A wait without limit can miss a signal: the kernel may give it to another thread, which does not wake this one.
    """
    try:
        fd = os.pidfd_open(process.pid)
    except OSError:  # a kernel before 5.3: Popen polls every 50 ms
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
    else:
        with files.Opened(fd):
            select.select([fd], [], [], seconds)
    return process.poll() is not None


def run(
    argv: Sequence[str],
    *,
    deadline_s: float,
    environ: Mapping[str, str],
    text: str = "",
    directory: str | None = None,
) -> Result:
    """Run one command. Raise FileNotFoundError if the program does not exist."""
    return run_together([Command(argv, text, directory)], deadline_s=deadline_s, environ=environ)[0]


def run_together(commands: Sequence[Command], *, deadline_s: float, environ: Mapping[str, str]) -> list[Result]:
    """Run commands in parallel under one deadline. Raise FileNotFoundError if a program does not exist."""
    end = time.monotonic() + deadline_s
    started: list[subprocess.Popen[bytes]] = []
    try:
        for command in commands:
            started.append(_start(command, environ))
        return [
            _finish(process, command.text, end - time.monotonic())
            for process, command in zip(started, commands, strict=True)
        ]
    finally:
        for process in started:
            _end(process)


def _start(command: Command, environ: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command.argv,
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        cwd=command.directory,
        env={**environ, **command.variables},
        start_new_session=True,
    )


def _finish(process: "subprocess.Popen[bytes]", text: str, left_s: float) -> Result:
    code: int | None
    try:
        out, err = process.communicate(text.encode(), timeout=max(0.0, left_s))
        code = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        try:
            out, err = process.communicate(timeout=LEFT_BEHIND_S)
        except subprocess.TimeoutExpired as late:  # a process that left the group still holds the pipes
            out, err = late.stdout or b"", late.stderr or b""
        code = None
    # Decode here: the text mode of Popen would turn a carriage return in a comment into a newline.
    return Result(code, out.decode(errors="replace"), err.decode(errors="replace"), process.pid)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Kill a command that still runs, and close its pipes."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe:
            pipe.close()
    with suppress(subprocess.TimeoutExpired):  # the process hangs in the kernel
        process.wait(LEFT_BEHIND_S)


# Variables that change what a reading command prints or means (ENVIRONMENT VARIABLES in squeue(1), sinfo(1), sacct(1)).
_MISLEADING = ("SQUEUE_", "SINFO_", "SACCT_", "SCONTROL_", "SLURM_", "LC_", "LANG")


def reading_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for commands other than sbatch: TZ=UTC, and no variables that change the output."""
    plain = {name: value for name, value in environ.items() if name in KEPT or not name.startswith(_MISLEADING)}
    return {**plain, "TZ": "UTC"}


def plain_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without SLURM_*, for steps of the plugin, which no variable may change."""
    return {name: value for name, value in environ.items() if name in KEPT or not name.startswith("SLURM_")}


def submitting_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for sbatch, which passes it to the job: without the variables of an outer job."""
    if "SLURM_JOB_ID" not in environ:
        return dict(environ)
    return plain_environment(environ) | {name: environ[name] for name in INHERITED & environ.keys()}


# Python can import a module from a zip, but cannot run it as a script. Import nothing from the current directory.
_OUT_OF_A_ZIP: Final = (
    "import sys, zipimport; sys.path[0] or sys.path.pop(0); "
    "exec(zipimport.zipimporter(sys.argv.pop(1)).get_source(sys.argv.pop(1)))"
)


def standalone_words(module: ModuleType, archive: str = "") -> list[str]:
    """Return the arguments of a Python interpreter that run `module` as a script, before the module's own arguments.

    `archive`: the path of the zip on other machines. Without it, only children of this process find the zip.
    """
    own: str = getattr(module.__loader__, "archive", "")
    if not own:
        return [str(module.__file__)]
    package, _, name = module.__name__.rpartition(".")
    place = archive or own.replace("/proc/self/", f"/proc/{os.getpid()}/")
    return ["-c", _OUT_OF_A_ZIP, f"{place}/{package.replace('.', '/')}", name]  # for zipimporter, and for get_source


NONCE_BYTES: Final = 6  # 48 random bits, which nobody can guess during a call of a few milliseconds
OF_A_CLUSTER: Final = ("squeue", "scontrol", "scancel", "sacct")  # commands with --clusters; sbatch chooses by itself
_UNKNOWN_JOB = "Invalid job id"
# Errors of the commands of 22.05, 24.11 and 26.05 if no slurmctld answers. If `scontrol` cannot change a job for this
# reason, its only error is "Unexpected message received".
AWAY = re.compile(
    "Unable to contact slurm controller|Unexpected message received|Socket timed out|Zero Bytes were transmitted"
    "|[Cc]ommunication connection failure|in standby mode|Connection (?:refused|reset)"
)
# After these errors it is certain that no active slurmctld has received the request.
_NOT_SENT = re.compile("connect failure|Connection refused|in standby mode")


class CommandRunner:
    """Slurm's commands in `directory` (empty: on the PATH), each with a deadline. `patience` says when to repeat.

    `cluster`: the other cluster to query; "" for the local one. `in_job`: whether this process is a job's: it outlives
    an upgrade of Slurm, in which commands are missing.
    """

    def __init__(
        self, directory: str, *, deadline_s: float, patience: Patience, cluster: str = "", in_job: bool = False
    ) -> None:
        self._directory = directory
        self._cluster = cluster
        self._in_job = in_job
        self._deadline_s = deadline_s
        self._patience = patience

    def _ask(self, argv: Sequence[str], why: Purpose, *, repeatable: bool = True) -> str:
        """Return the output of a command. Repeat the command while no controller answers."""
        return self._patience.ask(lambda: self._stdout(Command(argv), why), repeatable=repeatable)

    def _stdout(self, command: Command, why: Purpose) -> str:
        """Run one command once and return its output."""
        (result,) = self._run([command], time.monotonic() + self._deadline_s)
        return self._check(command.argv[0], result, why)

    def _run(self, commands: Sequence[Command], end: float) -> list[Result]:
        """Run commands in parallel until `end`, a time of the monotonic clock."""
        environ = submitting_environment if commands[0].argv[0] == "sbatch" else reading_environment
        where = [f"--clusters={self._cluster}"] if self._cluster and commands[0].argv[0] in OF_A_CLUSTER else []
        found = [replace(each, argv=(self._program(each.argv[0]), *where, *each.argv[1:])) for each in commands]
        try:
            return run_together(found, deadline_s=end - time.monotonic(), environ=environ(os.environ))
        except OSError as error:  # too many processes, too long an argument list, or a missing directory
            what = f"{error.strerror}: {error.filename}" if error.filename else error.strerror
            raise SlurmError(f"could not start {commands[0].argv[0]}: {what}\n  see: df, ulimit -a") from error

    def _check(self, program: str, result: Result, why: Purpose) -> str:
        """Return the output of a successful command, or of a squeue that does not know a job. Else raise SlurmError."""
        if result.code == 0 or (program == "squeue" and _UNKNOWN_JOB in result.err):
            return result.out
        if result.code is None:
            raise why.late(program, self._deadline_s, result.err.strip())
        said = (result.err or result.out).strip()
        if AWAY.search(said):
            raise why.away(program, said, sent=not _NOT_SENT.search(said))
        raise why.refused(program, said or f"exit code {result.code}, no message")

    def _program(self, name: str) -> str:
        path = str(Path(self._directory) / name) if self._directory else shutil.which(name)
        if not path or not os.access(path, os.X_OK):
            text = (
                f"{name} was not found {f'in {self._directory}' if self._directory else 'on the PATH'}\n"
                "  install Slurm's client commands (Debian: apt-get install slurm-client), or load the site's module"
            )
            raise SlurmAwayError(text, sent=False) if self._in_job else MissingError(text)
        return path


def new_nonce() -> str:
    """Return a random mark that ends each field of one answer."""
    return f"~{os.urandom(NONCE_BYTES).hex()}"  # `secrets` would take 9 ms to import
