"""Run one of Slurm's commands: an argument list, a deadline, its whole process group killed when that passes."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

CONF = "SLURM_CONF"
LEFT_BEHIND_S = 1.0  # how long the pipes of a killed command are waited for


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
    """Run `argv` with `text` on stdin. Raises FileNotFoundError where the program does not exist."""
    with subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=directory,
        env=environ,
        start_new_session=True,
    ) as process:
        code: int | None
        try:
            out, err = process.communicate(text.encode(), timeout=deadline_s)
            code = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            try:
                out, err = process.communicate(timeout=LEFT_BEHIND_S)
            except subprocess.TimeoutExpired as late:  # what left the group still holds the pipes: leave it
                out, err = late.stdout or b"", late.stderr or b""
                for pipe in (process.stdout, process.stderr):
                    if pipe:
                        pipe.close()
            code = None
    # Decoded here: Popen's own text mode would turn the carriage returns of a comment into newlines.
    return Result(code, out.decode(errors="replace"), err.decode(errors="replace"))


# Variables that change what a reading command prints or means (ENVIRONMENT VARIABLES in squeue(1), sinfo(1)).
_MISLEADING = ("SQUEUE_", "SINFO_", "SCONTROL_", "SLURM_", "LC_", "LANG")


def reading_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """For commands that read or change: nothing that alters their words, SLURM_CONF kept."""
    return submitting_environment({k: v for k, v in environ.items() if k == CONF or not k.startswith(_MISLEADING)})


def submitting_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """For sbatch, which hands it on to the job: the caller's own less an outer job's SLURM_*, SLURM_CONF kept."""
    return {name: value for name, value in environ.items() if name == CONF or not name.startswith("SLURM_")}
