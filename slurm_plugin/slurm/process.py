"""Run commands under one deadline. Kill their process groups when it passes."""

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import ModuleType
from typing import Final

from slurm_plugin.slurm.input_variables import INHERITED
from slurm_plugin.slurm.model import BACKEND

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
