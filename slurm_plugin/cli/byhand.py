"""`slurm-plugin check`, `why`, `shell` and their like on the whole command line: the node-side commands as they are."""

import click

from slurm_plugin.byhand import check as checks
from slurm_plugin.byhand import history as attempts
from slurm_plugin.byhand import release as releasing
from slurm_plugin.byhand import rerun as rerunning
from slurm_plugin.byhand import shell as shells
from slurm_plugin.byhand import why as reasons

_as_they_are = {"ignore_unknown_options": True}


@click.command(add_help_option=False, context_settings=_as_they_are)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def check(arguments: tuple[str, ...]) -> int:
    """Check this node by hand; --list explains each check."""
    return checks.main(list(arguments))


@click.command(add_help_option=False, context_settings=_as_they_are)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def why(arguments: tuple[str, ...]) -> int:
    """Say why a job waits, was requeued or ended, or why a node is out."""
    return reasons.main(list(arguments))


@click.command(add_help_option=False, context_settings=_as_they_are)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def history(arguments: tuple[str, ...]) -> int:
    """Show every attempt of a job, how it ended and why."""
    return attempts.main(list(arguments))


@click.command(add_help_option=False, context_settings=_as_they_are)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def shell(arguments: tuple[str, ...]) -> int:
    """Open a shell on a worker of a job, as its launch was there."""
    return shells.main(list(arguments))


@click.command(add_help_option=False, context_settings=_as_they_are)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def rerun(arguments: tuple[str, ...]) -> int:
    """Run the command of a held job again, on its nodes."""
    return rerunning.main(list(arguments))


@click.command(add_help_option=False, context_settings=_as_they_are)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def release(arguments: tuple[str, ...]) -> int:
    """End the hold of a job that failed."""
    return releasing.main(list(arguments))
