"""The user's own script of a batch script that `slurm-plugin sbatch` made: taken out of it, and run as it stands.

It stands below a mark, the last thing in the batch script, byte for byte; Slurm gives the first node a fresh copy of
that for every run.
"""

import argparse
import os
from contextlib import suppress
from pathlib import Path

from slurm_plugin.errors import UsageError
from slurm_plugin.job import files
from slurm_plugin.job.run import Run

NAME = "slurm_script"  # as Slurm's own copy has it


def command(options: argparse.Namespace, run: Run) -> list[str]:
    """The words that run it with its arguments. Raises UsageError where it is not there, OSError."""
    source, mark = options.script
    text = below(Path(source).read_bytes(), mark)
    path = files.directory(Path.cwd(), run.job_id) / f"{NAME}.{run.restart}"
    place(path, text)
    return [str(path), *options.command]


def below(batch: bytes, mark: str) -> bytes:
    """What stands below the line that is the mark. Raises UsageError where there is none."""
    _, found, text = batch.partition(f"\n{mark}\n".encode())
    if not found:
        raise UsageError(f"the batch script has no line {mark}: something has changed it; submit the script again")
    return text


def place(path: Path, text: bytes) -> None:
    """Have this program there, the user's alone: never what somebody else left under that name."""
    with suppress(FileNotFoundError):
        path.unlink()  # of another job of this number: of another cluster, or long ago
    with os.fdopen(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o700), "wb"
    ) as file:
        file.write(text)
