"""`slurm-plugin forecast`: when a job spec's job would start."""

import json
from datetime import UTC, datetime
from pathlib import Path

import click

from slurm_plugin import render, siteconfig, submit
from slurm_plugin.cli.jobs import config_option, flags_if_it_can_say, read_spec, spec_argument, spec_name
from slurm_plugin.errors import UsageError
from slurm_plugin.forecast import Answer, Wanted, of_partitions
from slurm_plugin.slurm import SlurmError, connect


@click.command()
@spec_argument
@config_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def forecast(spec_file: str, config: Path | None, *, as_json: bool) -> int:
    """Say when JOB.yaml would start, and what stands in its way. Nothing is submitted; exit 1: it would not start."""
    settings = siteconfig.load(config)
    spec = read_spec(spec_file, settings, flags_if_it_can_say)
    site = submit.here(settings)
    job = submit.build(spec, site, spec_name(spec_file))
    submit.check_directories(spec, site)
    door = connect()
    try:
        found = door.forecast(job.script, arguments=job.arguments, directory=job.directory)
        there = door.nodes([])
    except SlurmError as error:  # nobody could tell: that is not the same as that it would not start
        raise UsageError(str(error)) from error
    partitions = (found.partition,) if found.partition else ()
    wanted = Wanted(spec.name, render.node_count(spec), partitions)
    answer = Answer(wanted, found, of_partitions(there, partitions), datetime.now(UTC))
    click.echo(json.dumps(answer.record()) if as_json else "\n".join(answer.lines()))
    return int(found.start_time is None)
