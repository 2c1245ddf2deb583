"""`slurm-plugin completion` and `man`: print a shell's completion script, write the man pages."""

from pathlib import Path

import click

from slurm_plugin.cli.reference import bash, fish, manual, tree, zsh
from slurm_plugin.errors import SlurmPluginError

SHELLS = {"bash": bash.script, "zsh": zsh.script, "fish": fish.script}


def _tree(ctx: click.Context) -> tree.Node:
    """Return the tree of the whole command line, of which `ctx` is a part."""
    root = ctx.find_root()
    return tree.read(root.command, (str(root.info_name),))


@click.command()
@click.argument("shell", type=click.Choice(list(SHELLS)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of bash, zsh or fish. A Tab then starts no Python.

    \b
    Write it into one of these files. zsh: DIR is one of fpath.
    ~/.local/share/bash-completion/completions/slurm-plugin
    DIR/_slurm-plugin
    ~/.config/fish/completions/slurm-plugin.fish
    """
    click.echo(SHELLS[shell](_tree(ctx)), nl=False)


@click.command()
@click.argument("directory", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.pass_context
def man(ctx: click.Context, directory: Path) -> None:
    """Write the man pages into DIR/man1: slurm-plugin.1, and one for each command.

    \b
    For all users: slurm-plugin man /usr/local/share/man
    For yourself:  slurm-plugin man ~/.local/share/man
    """
    found = manual.pages(_tree(ctx))
    try:
        (directory / "man1").mkdir(parents=True, exist_ok=True)
        for name, text in found.items():
            (directory / "man1" / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise SlurmPluginError(f"{error.filename}: {error.strerror}\n  name a directory that you may write") from error
    click.echo(
        f"written: {len(found)} pages in {directory / 'man1'}\n  read one: man -l {directory}/man1/slurm-plugin.1"
    )
