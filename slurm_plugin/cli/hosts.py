"""`slurm-plugin hosts` on the whole command line: the node-side command as it is."""

import click

from slurm_plugin.job.hosts import main


@click.command(add_help_option=False, context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def hosts(arguments: tuple[str, ...]) -> int:
    """Print a hostfile or launch variables of an allocation."""
    return main(list(arguments))
