"""Run Slurm's commands: argument lists, one deadline, their whole process groups killed when that passes."""

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from slurm_plugin.slurm import BACKEND

KEPT = ("SLURM_CONF", BACKEND)  # of what begins with SLURM_: they say which Slurm is asked, and how
LEFT_BEHIND_S = 1.0  # how long the pipes of a killed command are waited for


@dataclass(frozen=True, slots=True)
class Command:
    """What to run: `argv` with `text` on stdin, in `directory` (None: here), with these variables besides."""

    argv: Sequence[str]
    text: str = ""
    directory: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Result:
    """What a command said. `code` is None where it was killed at the deadline; the texts are what came before."""

    code: int | None
    out: str
    err: str


def run(
    argv: Sequence[str],
    *,
    deadline_s: float,
    environ: Mapping[str, str],
    text: str = "",
    directory: str | None = None,
) -> Result:
    """Run one command. Raises FileNotFoundError where the program does not exist."""
    return run_together([Command(argv, text, directory)], deadline_s=deadline_s, environ=environ)[0]


def run_together(commands: Sequence[Command], *, deadline_s: float, environ: Mapping[str, str]) -> list[Result]:
    """Run commands side by side, under one deadline. Raises FileNotFoundError where a program does not exist."""
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
        except subprocess.TimeoutExpired as late:  # what left the group still holds the pipes: leave it
            out, err = late.stdout or b"", late.stderr or b""
        code = None
    # Decoded here: Popen's own text mode would turn the carriage returns of a comment into newlines.
    return Result(code, out.decode(errors="replace"), err.decode(errors="replace"))


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Leave nothing of a command behind, however we came here."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe:
            pipe.close()
    with suppress(subprocess.TimeoutExpired):  # one that the kernel does not let end is left to it
        process.wait(LEFT_BEHIND_S)


# Variables that change what a reading command prints or means (ENVIRONMENT VARIABLES in squeue(1), sinfo(1)).
_MISLEADING = ("SQUEUE_", "SINFO_", "SCONTROL_", "SLURM_", "LC_", "LANG")


def reading_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """For commands that read or change: times in UTC, nothing that alters their words."""
    plain = {name: value for name, value in environ.items() if name in KEPT or not name.startswith(_MISLEADING)}
    return {**plain, "TZ": "UTC"}


def submitting_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """For sbatch, which hands it on to the job: the caller's own less an outer job's SLURM_*."""
    return {name: value for name, value in environ.items() if name in KEPT or not name.startswith("SLURM_")}
