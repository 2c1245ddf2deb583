"""A command as data: its parameters, its help, its function. argparse runs it here, click in cli/group.py.

Standard library only: nodes have no click. Nothing slow is imported at the top: click commands do not need argparse.
"""

import errno
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from slurm_plugin.errors import INTERRUPTED, SlurmPluginError, UsageError, printable

if TYPE_CHECKING:
    import argparse

PROGRAM = "slurm-plugin"
WIDTH = 78  # as in click
LABEL_WIDTH = 30  # of the left column of a section, as in click
BROKEN_PIPE = 141  # a shell reports this if the reader of the output, such as `head`, has ended
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # a file that stdout was sent to cannot hold more


class Parameter(NamedTuple):
    """An option (`--json`) or an argument (`job`). An option without `metavar` and `choices` is a flag."""

    name: str
    help: str
    metavar: str = ""
    default: Any = None
    read: Callable[[str], Any] = str  # converts the text; raises ValueError
    choices: tuple[str, ...] = ()
    without_value: Any = None  # the value if the option is given without a value
    nargs: str = ""  # the number of values of an argument, as in argparse: "?", "*" or "+"
    short: str = ""  # of an option: its short name, such as `-o`

    @property
    def is_option(self) -> bool:
        """Return whether this is an option."""
        return self.name.startswith("-")

    @property
    def is_flag(self) -> bool:
        """Return whether this is an option that takes no value."""
        return self.is_option and not self.metavar and not self.choices

    @property
    def key(self) -> str:
        """Return the name of the value in the parsed options."""
        return self.name.lstrip("-").replace("-", "_")

    @property
    def names(self) -> list[str]:
        """Return the names by which users call it, the short one first."""
        return [*filter(None, (self.short, self.name))]

    @property
    def word(self) -> str:
        """Return the parameter as a usage line or a help section shows it."""
        value = self.metavar or f"[{'|'.join(self.choices)}]"
        name = ", ".join(self.names)
        if self.is_flag:
            return name
        if self.is_option:
            return f"{name} [{value}]" if self.without_value is not None else f"{name} {value}"
        return {"": value, "?": f"[{value}]", "*": f"[{value}]...", "+": f"{value}..."}[self.nargs]


class Command(NamedTuple):
    """A command: `run` gets the parsed options and returns the exit code."""

    name: str
    about: str  # the text of --help; further paragraphs give the exit codes
    parameters: tuple[Parameter, ...]
    run: "Callable[[argparse.Namespace], int]"

    def __call__(self, args: Sequence[str]) -> int:
        """Parse these words and run the command. Exit the process for wrong usage and for --help."""
        return guarded(lambda: self.start(self.parsed(args)))

    def parsed(self, args: Sequence[str]) -> "argparse.Namespace":
        """Parse these words. Exit the process for wrong usage and for --help."""
        import argparse  # noqa: PLC0415 - click commands do without

        definition = self

        class Parser(argparse.ArgumentParser):
            """argparse with the help and the error messages of click."""

            def format_help(self) -> str:
                return f"{definition.help()}\n"

            def error(self, message: str) -> Any:
                self.exit(2, f"{definition.usage()}\nTry '{self.prog} --help' for help.\n\nError: {message}\n")

        parser = Parser(prog=f"{PROGRAM} {self.name}", allow_abbrev=False)
        for each in self.parameters:
            parser.add_argument(*each.names, **_argparse_form(each))
        return parser.parse_args(args)

    def start(self, options: "argparse.Namespace") -> int:
        """Run the command and return its exit code; its caller guards it."""
        if getattr(options, IN_UTC.key, False):
            use_utc()
        return self.run(options)

    def usage(self) -> str:
        """Return the line that shows how to call the command."""
        words = (each.word for each in self.parameters if not each.is_option)
        return " ".join((f"Usage: {PROGRAM} {self.name} [OPTIONS]", *words))

    def help(self) -> str:
        """Return the text of --help, in click's form."""
        import textwrap  # noqa: PLC0415 - only --help needs it

        lines = [self.usage()]
        for paragraph in self.about.split("\n\n"):
            lines += ["", *textwrap.wrap(paragraph, WIDTH, initial_indent="  ", subsequent_indent="  ")]
        options = [(each.word, each.help) for each in self.parameters if each.is_option]
        sections = {
            "Arguments": [(each.word, each.help) for each in self.parameters if not each.is_option],
            "Options": [*options, ("-h, --help", "Show this message and exit.")],
        }
        for title, rows in sections.items():
            lines += ["", f"{title}:"] if rows else []
            left = min(max((len(word) for word, _ in rows), default=0), LABEL_WIDTH) + 2
            for word, text in rows:
                first, *more = textwrap.wrap(text, WIDTH - left - 2) or [""]
                lines += (
                    [f"  {word:{left}}{first}"] if len(word) < left - 1 else [f"  {word}", " " * (left + 2) + first]
                )
                lines += [" " * (left + 2) + line for line in more]
        return "\n".join(lines)


class Verbs(NamedTuple):
    """A command with verbs: the first word is one of `verbs`, or belongs to `default`."""

    default: Command
    verbs: Mapping[str, Command]

    def __call__(self, args: Sequence[str]) -> int:
        """Run the verb that the first word names, else the default."""
        return self.verbs[args[0]](args[1:]) if args and args[0] in self.verbs else self.default(args)


JSON = Parameter("--json", "Print one JSON object.")
IN_UTC = Parameter("--utc", "Print times in UTC.  [default: the time zone of this machine, or TZ]")


def within(least: float, most: float, kind: Callable[[str], float] = float) -> Callable[[str], Any]:
    """Return a function that reads a number from `least` to `most`, and raises ValueError for any other text."""

    def read(text: str) -> float:
        try:
            found = kind(text)
        except ValueError:
            found = least - 1
        if not least <= found <= most:
            raise ValueError(f"found {printable(text)!r}; accepted: {least:g} to {most:g}")
        return found

    return read


def use_utc() -> None:
    """Let this process print times in UTC."""
    import time  # noqa: PLC0415 - only --utc needs it

    os.environ["TZ"] = "UTC0"
    time.tzset()


def _argparse_form(parameter: Parameter) -> dict[str, Any]:
    """Return the arguments of argparse's add_argument for a parameter."""
    if parameter.is_flag:
        return {"action": "store_true"}
    import argparse  # noqa: PLC0415 - click commands do without

    def read(text: str) -> Any:
        try:
            return parameter.read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    form: dict[str, Any] = {"default": parameter.default, "type": read, "metavar": parameter.metavar or None}
    if parameter.choices:
        form["choices"] = parameter.choices
    if parameter.without_value is not None:
        form |= {"nargs": "?", "const": parameter.without_value}
    elif parameter.nargs:
        form["nargs"] = parameter.nargs
    return form


def guarded(command: Callable[[], int]) -> int:
    """Run a command and return its exit code; 2 if Slurm did not answer. Print a SlurmPluginError as one message."""
    try:
        try:
            return command()
        finally:
            sys.stdout.flush()  # here, where an error has a message, not at the exit of Python
    except SlurmPluginError as error:
        from slurm_plugin.slurm import SlurmError  # noqa: PLC0415 - only errors need it

        print(f"{PROGRAM}: {error}", file=sys.stderr)
        # If Slurm does not answer, the exit code differs from that for an unknown job.
        return UsageError.exit_code if isinstance(error, SlurmError) else error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:
        return unwritten(error)


def unwritten(error: OSError) -> int:
    """Return the exit code of a command whose output cannot be written to stdout. Raise any other error again."""
    full = error.errno in _FULL and error.filename is None
    if not full and not isinstance(error, BrokenPipeError):
        raise error
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes stdout at exit
    if not full:
        return BROKEN_PIPE
    print(f"{PROGRAM}: stdout: {error.strerror}; the output is not complete", file=sys.stderr)
    print("  send it to a place with space: df -h .", file=sys.stderr)
    return SlurmPluginError.exit_code


def coloured() -> bool:
    """Return whether stdout is a terminal that takes colours and NO_COLOR (no-color.org) is not set."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
