"""`slurm-plugin run`: run a job spec that a user gave sbatch as a batch script."""

import os
from pathlib import Path

import click
import msgspec

from slurm_plugin import spec as specs
from slurm_plugin.cli.nodeside import spec_file as spec_files
from slurm_plugin.errors import UsageError
from slurm_plugin.records import job_directory, site_settings
from slurm_plugin.slurm import SlurmError, connect
from slurm_plugin.spec import submit_config
from slurm_plugin.spec.submit_config import SubmitConfig
from slurm_plugin.submit import batch_spec
from slurm_plugin.submit import render as rendering
from slurm_plugin.submit.batch_spec import SlurmAnswers
from slurm_plugin.submit.wrapper import plugin_command
from slurm_plugin.supervisor.log import say

_BASH = "/bin/bash"


@click.command()
@click.argument("spec_file", metavar="JOB.yaml", type=click.Path(dir_okay=False))
@click.argument("arguments", nargs=-1)
def run(spec_file: str, arguments: tuple[str, ...]) -> int:
    """Run JOB.yaml, which sbatch was given as a batch script; its first line names this command.

    slurm-plugin render --batch JOB.yaml prints it with that line and the #SBATCH lines that it needs.
    """
    if arguments:
        raise UsageError(f"found {arguments[0]!r} behind the spec: it takes no arguments; write them into `command:`")
    data, config = spec_files.read_file(spec_file), _site_settings()
    runtime = config.container.runtime or ""
    found = specs.keyed(data, "JOB.yaml", presets=config.presets, runtime=runtime)
    spec, keys = specs.one(found, "JOB.yaml")
    directory = str(Path.cwd().resolve())
    spec = batch_spec.fit(spec, keys, batch_spec.given(os.environ, directory, _slurm_answers(), data), say)
    site = rendering.Site(directory, plugin_command.for_scripts(config.command), root=os.geteuid() == 0)
    if (number := os.environ.get("SLURM_ARRAY_JOB_ID") or os.environ.get("SLURM_JOB_ID", "")).isdecimal():
        job_directory.keep(Path(directory), int(number), spec=data)
    return _become(rendering.script(msgspec.structs.replace(spec, workdir=None), site))


def _site_settings() -> SubmitConfig:
    """Return the settings, without a file that cannot be read: a failure of this package ends no job."""
    try:
        site = submit_config.load_site()
    except UsageError as error:
        say(f"the site file cannot be read, so there are no presets and no container runtime: {error.one_line}")
        return SubmitConfig()
    try:
        return submit_config.load()
    except UsageError as error:
        say(f"your own settings are not used: {error.one_line}")
        return site


def _slurm_answers() -> SlurmAnswers:
    """Return Slurm's facts about this job; none outside a job, or if no controller answers."""
    try:
        number = int(os.environ.get("SLURM_JOB_ID", ""))
        door = connect(directory=site_settings.slurm_bin(), say=say, in_job=True)
        limits, devices = door.queueing([number]).get(number), door.devices_of(number)
        return SlurmAnswers(door.job(number), limits, door.request(number), devices)
    except ValueError:
        return SlurmAnswers()
    except SlurmError as error:
        say(f"could not compare the spec with the job: {error.one_line}")
        return SlurmAnswers()


def _become(script: str) -> int:
    """Replace this process with bash, which runs the rendered script as Slurm would."""
    made = os.memfd_create("slurm_plugin-script", 0)  # stays open: bash reads it
    with open(made, "w", encoding="utf-8", closefd=False) as file:
        file.write(script)
    os.execve(_BASH, [_BASH, f"/dev/fd/{made}"], os.environ)  # noqa: S606 - the job itself
