"""`slurm-plugin sbatch` on the whole command line: the command as it is, which `slurm_plugin.__main__` runs at once."""

import click

from slurm_plugin.wrapper import main


@click.command(add_help_option=False, context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def sbatch(arguments: tuple[str, ...]) -> int:
    """Submit a batch script as sbatch does; #PLUGIN lines are read."""
    return main(list(arguments))
