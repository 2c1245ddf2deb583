"""The whole command line as one click group, which imports a command's module only if the user names it."""

import gc
import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

import click

from slurm_plugin import __version__
from slurm_plugin.cli.nodeside.definition import IN_UTC, JSON, PROGRAM, Command, Parameter, guarded, unwritten, use_utc
from slurm_plugin.errors import INTERRUPTED, SlurmPluginError, printable
from slurm_plugin.records.nearest import nearest

_SLURMS = {"sacct", "sacctmgr", "salloc", "sattach", "scancel", "scontrol", "sdiag", "sinfo", "sprio", "squeue", "srun"}
# A command of another tool -> the command to use here.
ELSEWHERE = {
    **dict.fromkeys(("cancel", "kill"), "slurm-plugin stop JOB"),
    **dict.fromkeys(("queue", "list", "ls", "ps"), "slurm-plugin jobs"),
    **dict.fromkeys(("status", "explain"), "slurm-plugin why JOB"),
    **dict.fromkeys(("log", "output", "tail"), "slurm-plugin logs JOB"),
    **dict.fromkeys(("new", "create", "template"), "slurm-plugin init"),
    "examples": "slurm-plugin example",
    **dict.fromkeys(("ssh", "attach", "exec", "enter"), "slurm-plugin shell JOB"),
    **dict.fromkeys(("watch", "wait", "follow"), "slurm-plugin submit --wait JOB.yaml"),
    **{name: f"{name}, a command of Slurm's own" for name in _SLURMS},
    **{name: f"slurm-plugin open JOB {name}" for name in ("jupyter", "tensorboard", "code")},
    "validate": "slurm-plugin render JOB.yaml",
    **dict.fromkeys(("free", "node", "gpus"), "slurm-plugin nodes"),
    "install": "slurm-plugin site install",
}
ABOUT = "Checked nodes, ready launch environments and automatic restart for jobs on Slurm."
json_option = click.option(JSON.name, "as_json", is_flag=True, help=JSON.help)


def _use_utc(_ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    if wanted:
        use_utc()


utc_option = click.option(IN_UTC.name, is_flag=True, expose_value=False, help=IN_UTC.help, callback=_use_utc)
Index = Mapping[str, tuple[str, str]]  # command -> (module:attribute, its line of --help)


class LazyGroup(click.Group):
    """A group that imports a command when the user names it. It omits commands without a line of --help."""

    def __init__(self, index: Index, verb: str = "", about: str = ABOUT) -> None:
        """Hold the commands of `index`. `verb`: the command of which they are verbs; empty: the whole command line."""
        super().__init__(verb or PROGRAM, help=about, context_settings={"help_option_names": ["-h", "--help"]})
        self.index = {command: entry for command, entry in index.items() if entry[1]}
        self._called = f"{PROGRAM} {verb}" if verb else PROGRAM
        self._elsewhere = {} if verb else ELSEWHERE
        if not verb:
            click.version_option(__version__, prog_name=PROGRAM)(self)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all names, in the order of a job's life."""
        return list(self.index)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command."""
        if cmd_name not in self.index:
            ctx.fail(self._no_command(cmd_name))
        module, _, attribute = self.index[cmd_name][0].partition(":")
        gc.disable()  # imported objects are not garbage: collections would only cost time, now and at the end
        try:
            found = getattr(importlib.import_module(module), attribute)
            gc.freeze()
        finally:
            gc.enable()
        if isinstance(found, click.Command):
            return found
        return DefinedCommand(found) if isinstance(found, Command) else PassedOn(cmd_name, found)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self.index.items()])

    def _no_command(self, name: str) -> str:
        """Return the message for an unknown command, with the nearest known command."""
        close = nearest(name, self.index)
        then = self._elsewhere.get(name) or f"{self._called} {close or '--help'}"
        return f"found no command {printable(name[:64])}; try: {then}"


class DefinedCommand(click.Command):
    """A `Command` as a click command, with the text of --help that `Command` returns."""

    def __init__(self, definition: Command) -> None:
        from argparse import Namespace  # noqa: PLC0415 - other users of this module need no argparse

        super().__init__(
            definition.name,
            params=[parameter(each) for each in definition.parameters],
            callback=lambda **given: guarded(lambda: definition.start(Namespace(**given))),
            help=definition.about,
        )
        self.definition = definition

    def get_help(self, ctx: click.Context) -> str:
        """Return the same text as argparse shows."""
        return self.definition.help()


def parameter(defined: Parameter) -> click.Parameter:
    """Return a `Parameter` as a click parameter."""
    if not defined.is_option:
        required = defined.nargs in ("", "+")
        kept: dict[str, Any] = {"required": True} if required else {"default": defined.default}
        count = -1 if defined.nargs in ("*", "+") else 1
        return click.Argument([defined.key], metavar=defined.word, nargs=count, type=_kind(defined), **kept)
    if defined.is_flag:
        return click.Option([*defined.names, defined.key], is_flag=True, help=defined.help)
    form: dict[str, Any] = (
        {} if defined.without_value is None else {"is_flag": False, "flag_value": defined.without_value}
    )
    kind = click.Choice(defined.choices) if defined.choices else _kind(defined)
    metavar = defined.metavar or None
    return click.Option(
        [*defined.names, defined.key], metavar=metavar, default=defined.default, help=defined.help, type=kind, **form
    )


def _kind(defined: Parameter) -> Callable[[Any], Any]:
    """Return what reads a value. click gives it the default too, which is read only if it is text, as by argparse."""
    return lambda value: defined.read(value) if isinstance(value, str) else value


class PassedOn(click.Command):
    """A command that passes its words to `run`, which parses them."""

    def __init__(self, name: str, run: Callable[[list[str]], int]) -> None:
        super().__init__(
            name,
            params=[click.Argument(["arguments"], nargs=-1, type=click.UNPROCESSED)],
            callback=lambda arguments: run(list(arguments)),
            add_help_option=False,
            context_settings={"ignore_unknown_options": True},
        )
        self.run = run


def main(args: list[str], index: Index) -> int:
    """Run the command line and return its exit code. Print a SlurmPluginError as one message on stderr."""
    try:
        result = LazyGroup(index).main(args=args, prog_name=PROGRAM, standalone_mode=False)
        sys.stdout.flush()  # here, where an error has a message, not at the exit of Python
    except SlurmPluginError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return 2
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except OSError as error:
        return unwritten(error)
    return result if isinstance(result, int) else 0
