"""`slurm-plugin render` and `slurm-plugin submit`: from a job spec to a job."""

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from slurm_plugin import own_command, sitefile, templates
from slurm_plugin import render as rendering
from slurm_plugin import submit as submission
from slurm_plugin.errors import SlurmPluginError, UsageError
from slurm_plugin.slurm import Slurm, connect
from slurm_plugin.spec import Spec, load_all, origins
from slurm_plugin.spec.passed import Known
from slurm_plugin.yamltext import MAX_BYTES

CONTROLLER_AWAY_S = 60.0  # for a slurmctld that restarts
_INTERRUPTED = 130  # 128 + SIGINT, as shells have it

spec_argument = click.argument("spec_file", metavar="JOB.yaml", type=click.Path(dir_okay=False, allow_dash=True))
config_option = click.option(
    "--config",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    envvar="SLURM_PLUGIN_CONFIG",
    help=f"The site file.  [default: {sitefile.DEFAULT_PATH}, where it exists]",
)


@click.command()
@spec_argument
@config_option
@click.option("--alternative", type=click.IntRange(1), metavar="N", help="Of `any_of`: the Nth.  [default: 1]")
@click.option("--batch", is_flag=True, help="Print the spec itself, as a batch script: see slurm-plugin run.")
@click.option("--explain", is_flag=True, help="Say of each line which template, key, preset or policy gave it.")
def render(spec_file: str, config: Path | None, alternative: int | None, *, batch: bool, explain: bool) -> None:
    """Print the sbatch script that JOB.yaml becomes (`-`: the spec on stdin)."""
    site = sitefile.load(config)
    data = read_file(spec_file)
    specs = load_specs(data, spec_file, site, flags_if_it_can_say)
    if (alternative or 1) > len(specs):
        raise UsageError(f"--alternative {alternative}: found {len(specs)} in {spec_file}; accepted: 1 to {len(specs)}")
    if alternative is None and len(specs) > 1:
        click.echo(f"{spec_file}: the first of {len(specs)} alternatives; the others: --alternative 2", err=True)
    spec = specs[(alternative or 1) - 1]
    if batch and len(specs) > 1:
        raise UsageError("--batch: found any_of, and a script is one job\n  leave one of the two out")
    if batch:
        from slurm_plugin import batchspec  # noqa: PLC0415 - hardly ever wanted

        command = own_command.for_scripts("")  # the installed one: what is deployed reads no YAML
        click.echo(batchspec.made(spec, data.decode(), command, spec_file), nl=False)
        return
    here, name = submission.here(site), spec_name(spec_file)
    if explain:
        from slurm_plugin.explain import explained  # noqa: PLC0415 - hardly ever wanted

        where = origins.of(data, name, site.presets, (alternative or 1) - 1)
        policy = submission.verdict(submission.build(spec, here, name), site, os.environ)
        shipped = str(templates.templates_directory())
        click.echo("\n".join(explained(rendering.lines(spec, here, name), where, shipped, policy)))
        return
    click.echo(rendering.script(spec, here, name), nl=False)


@click.command()
@spec_argument
@config_option
@click.option("--dry-run", is_flag=True, help="Print the script and submit nothing.")
@click.option("--wait", is_flag=True, help="Follow the job; exit 0 only when it ends COMPLETED.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: one object, with --wait a second one at the end.")
def submit(spec_file: str, config: Path | None, *, dry_run: bool, wait: bool, as_json: bool) -> int:
    """Submit JOB.yaml (`-`: the spec on stdin) and print the job id."""
    settings = sitefile.load(config)
    specs = read_specs(spec_file, settings, flags_if_it_can_say if dry_run else _flags)
    site = submission.here(settings)
    jobs = [submission.build(spec, site, spec_name(spec_file)) for spec in specs]
    for job in jobs:
        submission.check_policy(job, settings, os.environ)
    if dry_run:
        click.echo("".join(job.script for job in jobs), nl=False)
        return 0
    if wait and specs[0].array:
        raise UsageError("--wait: found an array; one job can be followed\n  watch its tasks with: squeue --me --array")
    submission.check_directories(specs[0], site)
    logs = partial(submission.log, specs[0], site)
    for spec in specs:
        submission.check_files(spec, site)
        submission.check_data(spec, site, settings)
    submission.check_runtime(specs, _srun_takes)
    if len(jobs) > 1:
        return _alternatives(jobs, logs, wait=wait, as_json=as_json)
    job_id = submission.send(jobs[0], connect(patience_s=CONTROLLER_AWAY_S))
    click.echo(json.dumps({"job": job_id}) if as_json else str(job_id))
    if not wait and sys.stderr.isatty():
        click.echo(_then(job_id, logs), err=True)
    return _wait(connect(), job_id, logs, as_json=as_json) if wait else 0


def _alternatives(
    jobs: Sequence[submission.Submission], logs: Callable[[int], str], *, wait: bool, as_json: bool
) -> int:
    """Submit jobs of which one is to run, and follow that one."""
    ids = submission.send_alternatives(jobs, connect(patience_s=CONTROLLER_AWAY_S))
    click.echo(json.dumps({"any_of": ids}) if as_json else "\n".join(map(str, ids)))
    if not wait:
        return 0
    from slurm_plugin import follow  # noqa: PLC0415 - only who waits needs it

    try:
        job_id = follow.of_several(connect(), ids, follow.SystemClock())
    except KeyboardInterrupt:
        click.echo(f"they go on; cancel them with: scancel {' '.join(map(str, ids))}", err=True)
        return _INTERRUPTED
    return _wait(connect(), job_id, logs, as_json=as_json)


def _then(job_id: int, logs: Callable[[int], str]) -> str:
    """Where to look next."""
    path = logs(job_id)
    return "\n".join(
        (*([f"  its output: {path}"] if path else []), f"  how it goes, and why: slurm-plugin why {job_id}")
    )


def _wait(slurm: Slurm, job_id: int, logs: Callable[[int], str], *, as_json: bool) -> int:
    """Follow a job to its end, on stderr; 0 for COMPLETED, else 1."""
    from rich.console import Console  # noqa: PLC0415 - 50 ms, for who waits

    from slurm_plugin import follow  # noqa: PLC0415
    from slurm_plugin.cli.progress import display  # noqa: PLC0415

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
    if job and job.state == "COMPLETED":
        return 0
    click.echo(_then(job_id, logs), err=True)
    return 1


def _srun_takes(flag: str) -> bool | None:
    """Whether the srun of this machine has a flag."""
    from slurm_plugin.slurm import steps  # noqa: PLC0415 - for containers of pyxis alone

    return steps.takes(flag)


def _flags(names: Sequence[str]) -> Mapping[str, str]:
    """What the sbatch of this machine has."""
    return connect().sbatch_flags(names)


def flags_if_it_can_say(names: Sequence[str]) -> Mapping[str, str] | None:
    """The same; None where a script is made on a machine without a working sbatch."""
    try:
        return _flags(names)
    except SlurmPluginError:
        return None


def read_specs(spec_file: str, site: sitefile.SubmitConfig, known: Known) -> tuple[Spec, ...]:
    """The spec in a file, or on stdin; each of its alternatives as one."""
    return load_specs(read_file(spec_file), spec_file, site, known)


def load_specs(data: bytes, spec_file: str, site: sitefile.SubmitConfig, known: Known) -> tuple[Spec, ...]:
    """The same of what was read."""
    name, runtime = "<stdin>" if spec_file == "-" else spec_file, site.container.runtime or ""
    return load_all(data, name, presets=site.presets, known=known, runtime=runtime)


def read_file(spec_file: str) -> bytes:
    """What stands in a file, or on stdin."""
    try:
        if spec_file == "-":
            return sys.stdin.buffer.read(MAX_BYTES + 1)
        with Path(spec_file).open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{spec_file}: {error.strerror}\n  begin with: slurm-plugin example") from error


def spec_name(spec_file: str) -> str:
    return "JOB.yaml" if spec_file == "-" else Path(spec_file).name
