"""`slurm-plugin schema`: what editors complete a job spec from."""

import json

import click

from slurm_plugin.spec import schema as schemas


@click.command()
def schema() -> None:
    """Print the JSON Schema (draft 2020-12) of a job spec, which editors complete and check it by."""
    click.echo(json.dumps(schemas.schema(), indent=2))
