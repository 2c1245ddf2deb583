"""`slurm-plugin open --new SPEC`: a job with the environment of a spec, which waits for its user."""

import os
import time
from pathlib import Path
from typing import Final

import click
import msgspec

from slurm_plugin.cli import clone, specs
from slurm_plugin.cli.nodeside import job_lookup, spec_file
from slurm_plugin.errors import SlurmPluginError, UsageError
from slurm_plugin.records import job_directory, launch_record
from slurm_plugin.slurm import ENDED, connect
from slurm_plugin.slurm.batch import withdraw
from slurm_plugin.spec import Spec, changes, submit_config
from slurm_plugin.spec.key_types import Logs, Metadata
from slurm_plugin.submit import submission
from slurm_plugin.views import follow

IDLE: Final = "sleep infinity"  # replaces the command, and lasts until the time limit
OUTPUT: Final = "%x-%j.out"  # replaces the command of an array
POLL_S: Final = 0.5


def submit(given: str) -> int:
    """Submit a spec without its command, wait until it runs, and return the job id.

    `given`: the spec's file, or a job that was submitted as a spec. Raise SlurmPluginError if the job does not run.
    """
    config = os.environ.get(specs.CONFIG)
    settings = submit_config.load(Path(config) if config else None)
    name, data, directory = _read(given)
    if spec_file.is_search(data, name):
        raise UsageError(f"{name}: found a search; accepted: the spec of one job, so leave `search` out")
    spec = idle(spec_file.load_specs(data, name, settings, specs.sbatch_flags)[0])
    site = submission.here(settings)
    site = msgspec.structs.replace(site, directory=directory or site.directory)
    job = submission.build(spec, site, spec_file.spec_name(name))
    submission.check_policy(job, settings, os.environ)
    submission.check((spec,), site, settings)
    door = connect(patience_s=submission.CONTROLLER_AWAY_S)
    made = submission.send(job, door)
    if made.cluster:
        withdraw(door, [made])
        raise UsageError(
            f"--new: found cluster {made.cluster}; accepted: the cluster of this machine, without --clusters"
        )
    job_id = made.id
    try:
        _wait(job_id)
    except KeyboardInterrupt:
        click.echo(f"job {job_id} goes on; cancel it with: slurm-plugin stop {job_id}", err=True)
        raise
    return job_id


def _read(given: str) -> tuple[str, bytes, str]:
    """Return the name for messages, the spec, and the directory of submission (empty: the current one)."""
    if not job_lookup.is_job(given) or os.path.exists(given):  # noqa: PTH110 - a file may have a number as its name
        return given, spec_file.read_file(given), ""
    found = clone.original(given, Path.cwd(), job_lookup.door_to_slurm())
    if found.spec is None:
        raise UsageError(
            f"{found.name} was submitted as a batch script; accepted: a spec, or a job that was submitted as a spec\n"
            f"  while it runs: slurm-plugin open {given} shell"
        )
    return found.name, changes.applied(found.spec, clone.place(found), found.name), str(found.directory)


def idle(spec: Spec) -> Spec:
    """Return the spec with a command that only waits, and without the keys that would end or repeat it."""
    return msgspec.structs.replace(
        spec,
        command=IDLE,
        output=OUTPUT if "%a" in spec.output else spec.output,
        tasks=(),
        array=None,
        dependency=None,
        any_of=(),
        retries=0,
        spares=0,
        min_nodes=None,
        unconditional="no",
        queue_timeout=None,
        grace=None,
        hang_timeout=None,
        hold_on_failure=None,
        prechecks=(),
        logs=Logs(),
        metadata=Metadata(),
    )


def _wait(job_id: int) -> None:
    """Wait until the job's command has been launched, and print its changes. Raise SlurmPluginError if it ends."""
    door = connect()
    for look in follow.follow(door, job_id, time):
        for change in look.changes:
            click.echo(f"job {job_id}: {change}", err=True)
        if look.job and look.job.state == "RUNNING":
            break
    directory = job_lookup.work_directory(door, job_id)
    while (job := door.job(job_id)).state == "RUNNING":
        try:
            launch = launch_record.read(directory / job_directory.OURS / str(job_id)) if directory else None
        except launch_record.SavedError:
            launch = None
        if launch and launch.restart == job.restarts and launch.phase == "program":
            return
        time.sleep(POLL_S)
    if job.state in ENDED:
        raise SlurmPluginError(f"job {job_id} has ended: it is {job.state}\n  try: slurm-plugin why {job_id}")
    raise SlurmPluginError(f"job {job_id} is {job.state}\n  when it runs: slurm-plugin open {job_id} shell")
