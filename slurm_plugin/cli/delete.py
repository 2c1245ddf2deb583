"""`slurm-plugin delete`: remove the records and the logs of jobs that have ended, and on request their checkpoints."""

import os
import re
import shutil
import stat
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from slurm_plugin.cli.nodeside import job_lookup
from slurm_plugin.cli.nodeside.job_lookup import Done
from slurm_plugin.errors import SlurmPluginError, UsageError, printable
from slurm_plugin.node import retention
from slurm_plugin.records import job_directory, log_files
from slurm_plugin.slurm import ENDED, JobNotFoundError, Slurm
from slurm_plugin.spec import documents
from slurm_plugin.views import log


class Plan(NamedTuple):
    """What to remove of a job."""

    job: int
    workdir: Path
    logs: tuple[Path, ...]  # the job's own logs; those of nodes and ranks belong to the records
    kept: tuple[str, ...]  # what is kept, and why
    checkpoints: Path | None


@click.command()
@click.argument("jobs", metavar="JOB...", nargs=-1, required=True)
@click.option("--checkpoints", is_flag=True, help="Also remove the checkpoint directory that the spec names.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option("--directory", default=Path(), type=click.Path(path_type=Path), help=job_lookup.DIRECTORY.help)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def delete(jobs: Sequence[str], directory: Path, *, checkpoints: bool, yes: bool, as_json: bool) -> int:
    """Remove the records and the logs of jobs that have ended. Checkpoints and all other files stay.

    Exit 0: removed; 1: a job has not ended, or something could not be removed; 2: wrong usage, or Slurm did not answer.
    """
    door, cluster = job_lookup.door_to_slurm(), ""
    cluster = job_lookup.cluster(door)
    if not yes and not sys.stdin.isatty():
        raise UsageError("found no terminal to ask at\n  to delete without a question: slurm-plugin delete --yes JOB")

    def one(word: str) -> Done:
        found = plan(word, directory.absolute(), door, checkpoints=checkpoints)
        lines = _shown(found)
        if not yes:
            click.echo(f"job {found.job}:\n" + "\n".join(f"  {line}" for line in lines), err=True)
            if not click.confirm("delete this?", err=True):
                raise SlurmPluginError(f"job {found.job} is kept")
        freed = _remove(found, cluster)
        form: dict[str, Any] = {"bytes": freed, "kept": list(found.kept)}
        form["checkpoints"] = str(found.checkpoints) if found.checkpoints else None
        return Done(found.job, f"deleted, {log.size(freed)}" + "".join(f"; kept: {each}" for each in found.kept), form)

    return job_lookup.act_on_each(jobs, "delete", one, as_json=as_json)


def plan(word: str, directory: Path, door: Slurm, *, checkpoints: bool) -> Plan:
    """Return what to remove of a job. Raise SlurmPluginError if the job has not ended, or has no records here."""
    advice = "delete its tasks: slurm-plugin delete {tasks}"
    job_id = job_lookup.one_job(word, door, directory, SlurmPluginError, advice)
    workdir = directory
    try:
        job = door.job(job_id)
        workdir = job_lookup.work_directory(door, job_id) or directory
        if job.state not in ENDED:
            raise SlurmPluginError(
                f"job {job_id} has not ended: it is {job.state}\n  stop it: slurm-plugin stop {job_id}"
            )
    except JobNotFoundError:  # Slurm forgets jobs some minutes after their end
        pass
    own = workdir / job_directory.OURS / str(job_id)
    if not own.is_dir():
        raise SlurmPluginError(
            f"{printable(str(own))}: found no such directory\n"
            "  the working directory of a job that Slurm has forgotten: slurm-plugin delete --directory DIR JOB"
        )
    if own.lstat().st_uid != os.geteuid():
        raise SlurmPluginError(f"{printable(str(own))} belongs to another user\n  yours: squeue --me --states=all")
    logs, kept = _logs(own, job_id)
    place = _checkpoints(own, workdir) if checkpoints else None
    return Plan(job_id, workdir, tuple(logs), tuple(kept), place)


def _logs(own: Path, job_id: int) -> tuple[list[Path], list[str]]:
    """Return the job's own logs, and why another log is kept."""
    output = log_files.output(own)
    logs, kept = list[Path](), list[str]()
    numbers = {str(job_id), *(output.task.split("_") if output else ())} - {""}
    for text in dict.fromkeys((output.stdout, output.stderr)) if output else ():
        path = Path(text)
        if not text or not _is_own_file(path):
            continue
        if output and (path.parent == own or numbers & {*re.findall("[0-9]+", path.name)}):
            logs.append(path)
        else:
            kept.append(f"{printable(text)}, whose name has no job id: other jobs may write there")
    return logs, kept


def _is_own_file(path: Path) -> bool:
    try:
        found = path.lstat()
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()


def _checkpoints(own: Path, workdir: Path) -> Path | None:
    """Return the checkpoint directory of a job's spec. Raise SlurmPluginError if it may contain other files."""
    data = job_directory.kept(own, job_directory.SPEC)
    named = documents.read(data, job_directory.SPEC).fields.get("checkpoint") if data else None
    if not isinstance(named, str) or not named:
        raise SlurmPluginError(f"{printable(str(own))}: found no spec with `checkpoint`\n  remove checkpoints by hand")
    place = (workdir / named).resolve()
    for other in (workdir.resolve(), Path.home().resolve()):
        if other.is_relative_to(place):
            raise SlurmPluginError(f"checkpoint: {printable(named)} contains {other}\n  remove checkpoints by hand")
    if not place.is_dir():
        return None
    if place.stat().st_uid != os.geteuid():
        raise SlurmPluginError(f"{printable(str(place))} belongs to another user")
    return place


def _shown(found: Plan) -> Iterator[str]:
    """Yield a line for each thing that is removed or kept."""
    yield f"its records in {printable(str(found.workdir / job_directory.OURS / str(found.job)))}"
    yield from (f"its log {printable(str(path))}" for path in found.logs)
    if found.checkpoints:
        yield f"ITS CHECKPOINTS, which other jobs may use too: {printable(str(found.checkpoints))}"
    yield from (f"kept: {each}" for each in found.kept)


def _remove(found: Plan, cluster: str) -> int:
    """Remove a job's records, logs and checkpoints. Return the freed bytes. Raise SlurmPluginError if some are left."""
    freed = retention.remove_job(found.workdir, found.job, cluster)
    if freed is None:
        raise SlurmPluginError(f"job {found.job} belongs to another cluster, or cannot be removed\n  delete it there")
    for path in found.logs:
        try:
            size = path.lstat().st_blocks * retention.BLOCK_BYTES
            path.unlink()
            freed += size
        except OSError as error:
            raise SlurmPluginError(f"{printable(str(path))}: {error.strerror}") from error
    if found.checkpoints:
        failed = list[str]()
        freed += sum(each.lstat().st_blocks * retention.BLOCK_BYTES for each in found.checkpoints.rglob("*"))
        shutil.rmtree(found.checkpoints, onerror=lambda _, path, __: failed.append(str(path)))
        if failed:
            raise SlurmPluginError(f"{printable(failed[0])}: could not be removed, and {len(failed) - 1} more")
    return freed
