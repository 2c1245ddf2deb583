"""`slurm-plugin forecast`: when a job spec's job would start."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import click

from slurm_plugin import asked, sitefile, submit
from slurm_plugin.cli.jobs import config_option, flags_if_it_can_say, read_specs, spec_argument, spec_name
from slurm_plugin.errors import UsageError
from slurm_plugin.forecast import Answer, Wanted, of_partitions
from slurm_plugin.slurm import Node, Slurm, SlurmError, connect
from slurm_plugin.spec import Spec
from slurm_plugin.spec.kinds import joined


@click.command()
@spec_argument
@config_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, for each alternative one.")
def forecast(spec_file: str, config: Path | None, *, as_json: bool) -> int:
    """Say when JOB.yaml would start, and what stands in its way. Nothing is submitted; exit 1: it would not start."""
    settings = sitefile.load(config)
    specs = read_specs(spec_file, settings, flags_if_it_can_say)
    site, door = submit.here(settings), connect()
    submit.check_directories(specs[0], site)
    try:
        there = door.nodes([])
        answers = [_asked(spec, submit.build(spec, site, spec_name(spec_file)), door, there) for spec in specs]
    except SlurmError as error:  # nobody can tell: that is no word on its start
        raise UsageError(str(error)) from error
    for answer in answers:
        click.echo(json.dumps(answer.record()) if as_json else "\n".join(answer.lines()))
    return int(all(answer.found.start_time is None for answer in answers))


def _asked(spec: Spec, job: submit.Submission, door: Slurm, there: Mapping[str, Node]) -> Answer:
    """What Slurm says of one job. Raises SlurmError."""
    found = door.forecast(job.script, arguments=job.arguments, directory=job.directory)
    named = [found.partition or joined(part.partition) for part in spec.components]
    partitions = tuple(dict.fromkeys(filter(None, ",".join(named).split(","))))
    wanted = Wanted(spec.name, " + ".join(map(asked.node_count, spec.components)), partitions)
    return Answer(wanted, found, of_partitions(there, partitions), datetime.now(UTC))
