"""The whole command line as data: one tree of click commands and of `Command`s, for completion and man pages."""

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import click

from prechecks.registry import CHECKS
from slurm_plugin.cli.group import DefinedCommand, PassedOn
from slurm_plugin.cli.nodeside.definition import Command, Verbs
from slurm_plugin.views import states
from slurm_plugin.views.jobs import COLUMNS

# A word of a metavar, such as `JOB|NODE` or `[DIR]...` -> what completes it.
KINDS: Final[Mapping[str, str]] = {
    "JOB": "job",
    "NODE": "node",
    "NODES": "node",
    "NODELIST": "node",
    "FILE": "file",
    "LOG": "file",
    "SCRIPT": "file",
    "PATH": "file",
    "JOB.yaml": "spec",
    "SPEC": "spec",
    "SPEC.yaml": "spec",
    "DIR": "directory",
    "DIRECTORY": "directory",
    "EXPERIMENT": "directory",
    "USER": "user",
    "PARTITION": "partition",
    "COMMAND": "command",
}
# A metavar -> the values that the command knows by name.
KNOWN: Final[Mapping[str, tuple[str, ...]]] = {
    "ITEM": tuple(each.item for each in CHECKS),
    "STATES": tuple(states.WORDS),
    "COLUMNS": tuple(COLUMNS),
}
MOST_NAMED: Final = 8
HELP: Final = ("-h", "--help")


class Word(NamedTuple):
    """An option, or an argument, which has no `names`."""

    names: tuple[str, ...]
    metavar: str  # empty: a flag
    help: str
    kinds: tuple[str, ...] = ()  # of KINDS: what completes the value
    choices: tuple[str, ...] = ()  # the accepted values, or examples of them
    optional: bool = False  # an option whose value, or an argument that may be left out
    many: bool = False  # an argument that takes several values

    @property
    def shown(self) -> str:
        """Return the argument as a usage line shows it."""
        inner = f"[{self.metavar}]" if self.optional else self.metavar
        return f"{inner}..." if self.many else inner


class Node(NamedTuple):
    """A command, or a group of commands if it has `verbs`."""

    path: tuple[str, ...]  # ("slurm-plugin", "experiment", "status")
    summary: str  # one line
    paragraphs: tuple[str, ...]
    options: tuple[Word, ...]
    arguments: tuple[Word, ...]
    verbs: "tuple[Node, ...]" = ()

    @property
    def name(self) -> str:
        """Return the words of the command."""
        return " ".join(self.path)

    def walk(self) -> "Iterator[Node]":
        """Yield this node and all below it."""
        yield self
        for verb in self.verbs:
            yield from verb.walk()


def read(command: click.Command, path: tuple[str, ...], summary: str = "") -> Node:
    """Return the tree of a click command. `summary`: its line in the list of its group."""
    if isinstance(command, PassedOn):
        return _passed_on(command, path, summary)
    if isinstance(command, DefinedCommand):
        return _defined(command.definition, path, summary)
    ctx = click.Context(command, info_name=path[-1])
    verbs: list[Node] = []
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            verb = command.get_command(ctx, name)
            if verb is not None and not verb.hidden:
                verbs.append(read(verb, (*path, name), _line(command, verb, name)))
    own = [each for each in command.params if not getattr(each, "hidden", False)]
    options = [_of_click(each, ctx) for each in own if isinstance(each, click.Option)]
    arguments = [_of_click(each, ctx) for each in own if isinstance(each, click.Argument)]
    paragraphs = _paragraphs((command.help or "").partition("\f")[0])
    return Node(path, summary or paragraphs[0], paragraphs, (*options, _help()), tuple(arguments), tuple(verbs))


def _line(group: click.Group, verb: click.Command, name: str) -> str:
    """Return the line of a verb in the list of its group: the group's own, else the first sentence of its help."""
    index: Mapping[str, tuple[str, str]] = getattr(group, "index", {})
    text = _paragraphs(verb.help or "")[0]
    return index[name][1] if name in index else re.split(r"(?<=\.) (?=[A-Z])", text)[0]


def _paragraphs(text: str) -> tuple[str, ...]:
    """Return the paragraphs of a help text. The lines of one that click does not wrap are paragraphs of their own."""
    found: list[str] = []
    for each in text.strip().split("\n\n"):
        fixed = each.lstrip().startswith("\b\n")
        found += each.strip().splitlines()[1:] if fixed else [each]
    return tuple(" ".join(each.split()) for each in found)


def _help() -> Word:
    return Word(HELP, "", "Show this message and exit.")


def _passed_on(command: PassedOn, path: tuple[str, ...], summary: str) -> Node:
    """Return a command that parses its own words: one with verbs of its own, or one that takes another tool's words."""
    if isinstance(command.run, Verbs):
        whole = _defined(command.run.default, path, summary)
        verbs = tuple(_defined(each, (*path, name), "") for name, each in command.run.verbs.items())
        return whole._replace(verbs=verbs)
    return Node(path, summary, (summary,), (), (Word((), "FILE", "", ("file",), optional=True, many=True),))


def _defined(command: Command, path: tuple[str, ...], summary: str) -> Node:
    words = [
        Word(
            tuple(each.names) if each.is_option else (),
            "" if each.is_flag else each.metavar or _alternatives(each.choices, each.key),
            each.help,
            *_completes(each.metavar, each.name, each.choices),
            optional=each.nargs in ("?", "*") if not each.is_option else each.without_value is not None,
            many=each.nargs in ("*", "+"),
        )
        for each in command.parameters
    ]
    options = (*(each for each in words if each.names), _help())
    paragraphs = _paragraphs(command.about)
    return Node(path, summary or paragraphs[0], paragraphs, options, tuple(each for each in words if not each.names))


def _alternatives(choices: tuple[str, ...], name: str) -> str:
    """Return a metavar that names the accepted values; the name of the parameter if they are many."""
    return "|".join(choices) if len(choices) <= MOST_NAMED else name.upper()


def _completes(metavar: str, name: str = "", choices: tuple[str, ...] = ()) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what completes a value: kinds and choices."""
    if choices:
        return (), choices
    if metavar in KNOWN:
        return (), KNOWN[metavar]
    if name in ("--partition", "--default-partition", "--user", "--node"):
        metavar = name.rpartition("-")[2].upper()  # whatever the value is called
    found = (KINDS[word] for word in re.split(r"[^\w.]+", metavar) if word in KINDS)
    return tuple(dict.fromkeys(found)), ()


def _of_click(param: click.Parameter, ctx: click.Context) -> Word:
    """Return an option or argument of click."""
    is_option = isinstance(param, click.Option)
    flag = isinstance(param, click.Option) and param.is_flag
    metavar = "" if flag else param.metavar or ("" if is_option else (param.name or "").upper())
    choices = tuple(map(str, param.type.choices)) if isinstance(param.type, click.Choice) else ()
    if not choices and not flag:  # what the parameter offers for click's own completion
        choices = tuple(str(each.value) for each in param.shell_complete(ctx, "") if each.type == "plain")
    kinds, choices = _completes(metavar, param.opts[0] if is_option else "", choices)
    if not flag and not kinds and isinstance(param.type, click.Path | click.File):
        kinds = ("directory",) if isinstance(param.type, click.Path) and not param.type.file_okay else ("file",)
    if not flag and not metavar:
        metavar = _alternatives(choices, str(param.name)) or {"file": "FILE", "directory": "DIR"}.get(
            "".join(kinds), param.type.name.upper()
        )
    optional = not is_option and not param.required
    bare = metavar.removesuffix("...").removeprefix("[").removesuffix("]") if optional else metavar
    text = (param.help or "") if isinstance(param, click.Option) else ""
    names = (*param.opts, *param.secondary_opts) if is_option else ()
    return Word(names, bare, " ".join(text.split()), kinds, choices, optional, many=param.nargs == -1)
