"""`slurm-plugin render` and `slurm-plugin submit`: from a job spec to a job."""

import json
import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from slurm_plugin import batchspec, follow, own_command, siteconfig
from slurm_plugin import render as rendering
from slurm_plugin import spec as specs
from slurm_plugin import submit as submission
from slurm_plugin.cli.progress import display
from slurm_plugin.errors import UsageError
from slurm_plugin.slurm import Slurm, connect
from slurm_plugin.yamltext import MAX_BYTES

CONTROLLER_AWAY_S = 60.0  # for a slurmctld that restarts
_INTERRUPTED = 130  # 128 + SIGINT, as shells have it

_spec_argument = click.argument("spec_file", metavar="JOB.yaml", type=click.Path(dir_okay=False, allow_dash=True))
_config_option = click.option(
    "--config",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    envvar="SLURM_PLUGIN_CONFIG",
    help=f"The site file.  [default: {siteconfig.DEFAULT_PATH}, where it exists]",
)


@click.command()
@_spec_argument
@_config_option
@click.option("--batch", is_flag=True, help="Print the spec itself, as a batch script: see slurm-plugin run.")
def render(spec_file: str, config: Path | None, *, batch: bool) -> None:
    """Print the sbatch script that JOB.yaml becomes (`-`: the spec on stdin)."""
    if batch:
        data = _data(spec_file)
        command = own_command.for_scripts("")  # the installed one: what is deployed reads no YAML
        click.echo(batchspec.made(specs.load(data, spec_file), data.decode(), command, spec_file), nl=False)
        return
    spec = _read(spec_file)
    click.echo(rendering.script(spec, submission.here(siteconfig.load(config)), _name(spec_file)), nl=False)


@click.command()
@_spec_argument
@_config_option
@click.option("--dry-run", is_flag=True, help="Print the script and submit nothing.")
@click.option("--wait", is_flag=True, help="Follow the job; exit 0 only when it ends COMPLETED.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: one object, with --wait a second one at the end.")
def submit(spec_file: str, config: Path | None, *, dry_run: bool, wait: bool, as_json: bool) -> int:
    """Submit JOB.yaml (`-`: the spec on stdin) and print the job id."""
    spec = _read(spec_file)
    site = submission.here(siteconfig.load(config))
    job = submission.build(spec, site, _name(spec_file))
    if dry_run:
        click.echo(job.script, nl=False)
        return 0
    submission.check_directories(spec, site)
    job_id = submission.send(job, connect(patience_s=CONTROLLER_AWAY_S))
    click.echo(json.dumps({"job": job_id}) if as_json else str(job_id))
    return _wait(connect(), job_id, as_json=as_json) if wait else 0


def _wait(slurm: Slurm, job_id: int, *, as_json: bool) -> int:
    """Follow a job to its end, on stderr; 0 for COMPLETED, else 1."""
    console = Console(stderr=True, highlight=False)
    last: follow.Look | None = None
    try:
        with display(console, job_id) as shown:
            for last in follow.follow(slurm, job_id, follow.SystemClock()):
                shown.show(last)
    except KeyboardInterrupt:
        click.echo(f"job {job_id} goes on; cancel it with: scancel {job_id}", err=True)
        return _INTERRUPTED
    job = last.job if last else None
    if as_json and job:
        fields: dict[str, Any] = {"exit_code": job.exit_code, "signal": job.exit_signal, "restarts": job.restarts}
        click.echo(json.dumps({"job": job_id, "state": job.state, **fields}))
    return 0 if job and job.state == "COMPLETED" else 1


def _read(spec_file: str) -> specs.Spec:
    """The spec in a file, or on stdin."""
    return specs.load(_data(spec_file), "<stdin>" if spec_file == "-" else spec_file)


def _data(spec_file: str) -> bytes:
    """What stands in a file, or on stdin."""
    try:
        if spec_file == "-":
            return sys.stdin.buffer.read(MAX_BYTES + 1)
        with Path(spec_file).open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{spec_file}: {error.strerror}\n  give a job spec; see: docs/spec.md") from error


def _name(spec_file: str) -> str:
    return "JOB.yaml" if spec_file == "-" else Path(spec_file).name
