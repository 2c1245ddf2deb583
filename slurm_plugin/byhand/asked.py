"""The job that a command by hand is about: its number, what Slurm says of it, and what stands in its own directory."""

import argparse
from pathlib import Path
from typing import Any, NamedTuple

from slurm_plugin.errors import SlurmPluginError, UsageError, printable
from slurm_plugin.job import files, hold
from slurm_plugin.slurm import ENDED, Job, JobNotFoundError, Slurm, SlurmError, connect

DEADLINE_S = 10.0  # for each answer of Slurm's, while somebody waits at a terminal


class NotRunningError(SlurmPluginError):
    """The job does not run now, or not so that this can be done with it (exit 1)."""


class Known(NamedTuple):
    """What can be known of a job from here: what Slurm says, and what stands in the job's own directory."""

    job: Job | None  # None where Slurm does not know it any longer
    directory: Path
    attempts: list[dict[str, Any]] | None  # None where they cannot be read
    held: dict[str, Any] | None  # None where it is in no hold


def add_job_options(parser: argparse.ArgumentParser) -> None:
    """What every command about a job takes."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--directory",
        type=Path,
        default=Path(),
        metavar="DIR",
        help="the job's working directory, where Slurm does not know it any longer (default: here)",
    )


def work_directory(door: Slurm, job_id: int) -> Path | None:
    """Where a job runs, as an absolute path; None where Slurm does not say so."""
    try:
        found = door.work_directory(job_id)
    except SlurmError:
        return None
    return Path(found) if found.startswith("/") else None


def job_number(word: str) -> int:
    """The number that a user gave for a job. Raises UsageError for what is none."""
    if not (word.isdecimal() and word.isascii()):
        raise UsageError(
            f"{printable(word)!r} is no job\n"
            "  accepted is a job's number such as 17 (of a task of an array: squeue -j 17_3 -o %A)"
        )
    return int(word)


def slurm() -> Slurm:
    """Slurm, as commands by hand ask it."""
    return connect(deadline_s=DEADLINE_S)


def known(door: Slurm, job_id: int, directory: Path) -> Known:
    """What can be known of a job; `directory` is its working directory where Slurm does not say it.

    Raises SlurmError without an answer.
    """
    try:
        found = door.job(job_id)
        workdir = work_directory(door, job_id) or directory
    except JobNotFoundError:
        found, workdir = None, directory
    own, ours = workdir / files.OURS / str(job_id), cluster(door)
    return Known(found, own, files.history(workdir, job_id, ours), hold.now(found, own, ours) if found else None)


def cluster(door: Slurm) -> str:
    """The name of the cluster that is asked, which tells its jobs from another's; empty where Slurm does not say."""
    try:
        return door.config().get("ClusterName", "")
    except SlurmError:
        return ""


def running(word: str) -> tuple[Job, Path, Slurm]:
    """The job that a user gave, which runs, its own directory as it is seen from here, and the Slurm that knows it.

    Raises UsageError for what is no job's number, NotRunningError where it does not run or its directory is not on this
    machine, SlurmError without an answer.
    """
    job_id, door = job_number(word), slurm()
    try:
        found = door.job(job_id)
    except JobNotFoundError as error:
        raise NotRunningError(f"Slurm does not know job {job_id}\n  try: slurm-plugin why {job_id}") from error
    if found.state != "RUNNING":
        what = "has ended" if found.state in ENDED else "does not run"
        raise NotRunningError(f"job {job_id} {what}: it is {found.state}\n  try: slurm-plugin why {job_id}")
    directory = (work_directory(door, job_id) or Path()) / files.OURS / str(job_id)
    try:
        directory.stat()
    except PermissionError as error:
        whose = f"only {found.user}, whose job it is, may look there"
        raise NotRunningError(f"{directory}: {whose}\n  as that user: slurm-plugin why {job_id}") from error
    except OSError as error:
        raise NotRunningError(
            f"{directory}: {error.strerror} on this machine; it is made when a job of ours begins\n"
            "  where its file system is not mounted here, call this on a node of the job:\n"
            f"  srun --jobid={job_id} --overlap --nodes=1 --ntasks=1 --pty bash"
        ) from error
    return found, directory, door
