"""`slurm-plugin run`: the interpreter of a job spec that sbatch was given as a batch script."""

import os
from pathlib import Path

import click
import msgspec

from slurm_plugin import batchspec, sitefile, submit
from slurm_plugin import render as rendering
from slurm_plugin import spec as specs
from slurm_plugin.batchspec import Told
from slurm_plugin.cli import jobs
from slurm_plugin.errors import UsageError
from slurm_plugin.job.log import say
from slurm_plugin.slurm import SlurmError, connect

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
    data, config = jobs.read_file(spec_file), sitefile.load()
    runtime = config.container.runtime or ""
    found = specs.keyed(data, "JOB.yaml", presets=config.presets, runtime=runtime)
    spec, keys = specs.one(found, "JOB.yaml")
    directory = str(Path.cwd().resolve())
    spec = batchspec.fitted(spec, keys, batchspec.given(os.environ, directory, _told(), data), say)
    site = rendering.Site(directory, submit.own_command(config), root=os.geteuid() == 0)
    return _become(rendering.script(msgspec.structs.replace(spec, workdir=None), site))


def _told() -> Told:
    """What Slurm says of this job; a controller that is away costs no job."""
    try:
        number = int(os.environ.get("SLURM_JOB_ID", ""))
        door = connect(say=say)
        return Told(door.job(number), door.queueing([number]).get(number), door.request(number))
    except ValueError:
        return Told()
    except SlurmError as error:
        say(f"could not compare the spec with the job: {error.one_line}")
        return Told()


def _become(script: str) -> int:
    """Run what the spec is rendered to, as Slurm would."""
    made = os.memfd_create("slurm_plugin-script", 0)  # stays open: bash reads it
    with open(made, "w", encoding="utf-8", closefd=False) as file:
        file.write(script)
    os.execve(_BASH, [_BASH, f"/dev/fd/{made}"], os.environ)  # noqa: S606 - the job itself
