"""`slurm-plugin completion` and `man`: print a shell's completion script, write the man pages.

The pages are in the macros of man(7), one for each command of the tree.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import click

from slurm_plugin import __version__
from slurm_plugin.cli.reference import bash, fish, tree, zsh
from slurm_plugin.cli.reference.tree import Node, Word
from slurm_plugin.errors import SlurmPluginError

EXIT: Final[Mapping[str, str]] = {
    "0": "Success.",
    "1": "The command failed, or the job that it is about failed.",
    "2": "Wrong usage, or the answer is not known, for example because Slurm did not answer.",
    "3": "Something is missing on this machine.",
    "130": "Ctrl-C.",
}
ENVIRONMENT: Final[Mapping[str, str]] = {
    "NO_COLOR": "If it is set, nothing is coloured.",
    "PAGER": "Shows output that is longer than the terminal; less if it is not set. With PAGER=cat there is no pager.",
    "VISUAL, EDITOR": "Opens a job spec for --edit; vi if neither is set.",
    "SLURM_PLUGIN_CONFIG": "The site file, as --config.",
}


def pages(tree: Node) -> dict[str, str]:
    """Return the pages by file name, such as `slurm-plugin-submit.1`."""
    parents = {verb.path: node for node in tree.walk() for verb in node.verbs}
    return {f"{'-'.join(node.path)}.1": page(node, parents.get(node.path)) for node in tree.walk()}


def page(node: Node, parent: Node | None) -> str:
    """Return the man page of a command. `parent`: the group that it belongs to."""
    title = "-".join(node.path)
    lines = [
        f'.TH "{_escaped(title.upper())}" 1 "" "slurm_plugin {__version__}" "slurm_plugin"',
        ".nh",  # no hyphens, no stretched lines
        ".ad l",
        ".SH NAME",
        f"{_escaped(title)} \\- {_text(node.summary).removesuffix('.')}",
        ".SH SYNOPSIS",
        f"\\fB{_escaped(node.name)}\\fR {_usage(node)}",
        ".SH DESCRIPTION",
        *_paragraphs(_text(each) for each in node.paragraphs if not each.startswith("Exit ")),
    ]
    if node.verbs:
        lines.append(".SH COMMANDS")
        for verb in node.verbs:
            lines += [".TP", f"\\fB{_escaped(verb.path[-1])}\\fR", _text(verb.summary)]
    lines += _section("ARGUMENTS", [(word.shown, _about(word)) for word in node.arguments if word.help or word.choices])
    lines += _section("OPTIONS", [(_option(word), _about(word)) for word in node.options])
    if parent is None:
        lines += _section("EXIT STATUS", list(EXIT.items())) + _section("ENVIRONMENT", list(ENVIRONMENT.items()))
    elif exits := [each.removeprefix("Exit ") for each in node.paragraphs if each.startswith("Exit ")]:
        lines += [".SH EXIT STATUS", *_paragraphs(map(_text, exits))]
    see = [each.path for each in (*([parent] if parent else []), *node.verbs)]
    if see:
        lines += [".SH SEE ALSO", ",\n".join(f"\\fB{_escaped('-'.join(path))}\\fR(1)" for path in see)]
    return "\n".join(lines) + "\n"


def _usage(node: Node) -> str:
    words = ["[OPTIONS]"] if node.options else []
    if node.verbs:
        words += ["[COMMAND]..." if node.arguments else "COMMAND [ARGUMENTS]..."]
    return _escaped(" ".join((*words, *(word.shown for word in node.arguments))))


def _option(word: Word) -> str:
    names = ", ".join(word.names)
    return names + (f"[={word.metavar}]" if word.optional else f" {word.metavar}" if word.metavar else "")


def _about(word: Word) -> str:
    """Return the help of a word, with the accepted values that its metavar does not name."""
    shown = all(choice in re.split(r"\W*[| ]\W*", word.metavar) for choice in word.choices)
    listed = all(choice in word.help for choice in word.choices)
    return word.help if shown or listed else f"{word.help} {', '.join(word.choices)}.".strip()


def _section(title: str, rows: Sequence[tuple[str, str]]) -> list[str]:
    lines = [f".SH {title}"] if rows else []
    for word, text in rows:
        lines += [".TP", f"\\fB{_escaped(word)}\\fR", _text(text)]
    return lines


def _paragraphs(texts: Iterator[str]) -> Iterator[str]:
    """Yield the texts with the macro of a new paragraph between them."""
    for number, text in enumerate(texts):
        if number:
            yield ".PP"
        yield text


def _text(text: str) -> str:
    """Return a paragraph. Words in backticks become bold."""
    return re.sub("`([^`]*)`", r"\\fB\1\\fR", _escaped(text))


def _escaped(text: str) -> str:
    r"""Escape `\` and `-`, and `.` and `'` at the start, so that roff prints them."""
    escaped = " ".join(text.split()).replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped[:1] in (".", "'") else escaped


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
    found = pages(_tree(ctx))
    try:
        (directory / "man1").mkdir(parents=True, exist_ok=True)
        for name, text in found.items():
            (directory / "man1" / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise SlurmPluginError(f"{error.filename}: {error.strerror}\n  name a directory that you may write") from error
    click.echo(
        f"written: {len(found)} pages in {directory / 'man1'}\n  read one: man -l {directory}/man1/slurm-plugin.1"
    )
