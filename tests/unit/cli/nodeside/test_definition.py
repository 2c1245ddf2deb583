"""A command is defined once: argparse on a node and click elsewhere give the same --help and results."""

import subprocess
import sys

import click
import pytest

from slurm_plugin.__main__ import COMMANDS, NODE_SIDE, main
from slurm_plugin.cli.group import LazyGroup
from slurm_plugin.cli.group import main as whole
from slurm_plugin.cli.nodeside import definition
from slurm_plugin.cli.nodeside.definition import Command, Parameter
from slurm_plugin.errors import printable
from slurm_plugin.logs import selection
from tests.refusals import refusal_of

GIVEN: list[dict[str, object]] = []


def noted(options: object) -> int:
    GIVEN.append(vars(options))
    return 7


PARAMETERS = (
    Parameter("job", "a number", "JOB"),
    Parameter("items", "more of them", "ITEM", nargs="*"),
    Parameter("--flag-of-two", "Set it."),
    Parameter("--size", "A number.", "N", 3, selection.number, short="-s"),
    Parameter("--hook", "A word.", default="b", choices=("a", "b")),
    Parameter("--watch", "Repeat.", "SECONDS", read=float, without_value=5.0),
)
TRY = Command("try", "Try it.\n\nExit 0: done.", PARAMETERS, noted)
INDEX = {"try": ("tests.unit.cli.nodeside.test_definition:TRY", "Try it.")}
HELP = """\
Usage: slurm-plugin try [OPTIONS] JOB [ITEM]...

  Try it.

  Exit 0: done.

Arguments:
  JOB        a number
  [ITEM]...  more of them

Options:
  --flag-of-two      Set it.
  -s, --size N       A number.
  --hook [a|b]       A word.
  --watch [SECONDS]  Repeat.
  -h, --help         Show this message and exit.
"""


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> LazyGroup:
    """Return the whole command line with only that command."""
    monkeypatch.setattr("importlib.import_module", lambda _: type("module", (), {"TRY": TRY}))
    return LazyGroup(INDEX)


@pytest.mark.parametrize(
    "words",
    [
        ["7"],
        ["7", "x", "y", "--flag-of-two", "--size=4", "--hook", "a"],
        ["--watch=0.5", "7", "x"],
        ["-s", "4", "7"],
        ["7", "--watch"],
    ],
)
def test_both_read_the_same(group: LazyGroup, words: list[str]) -> None:
    """Every value and the exit code are the same. A default is no text, and is not read."""
    GIVEN.clear()
    assert TRY(words) == 7
    assert group.main(["try", *words], standalone_mode=False) == 7
    first, second = ({**given, "items": list(given["items"])} for given in GIVEN)
    assert first == second


@pytest.mark.parametrize(
    "words", [[], ["7", "--size=x"], ["7", "--hook", "c"], ["7", "--watch=x"], ["7", "--nope"], ["7", "--fl"]]
)
def test_both_refuse_the_same(group: LazyGroup, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 2, with the usage line and a pointer to the help. No option may be abbreviated."""
    assert refusal_of(SystemExit, TRY, words) == "2"
    first = capsys.readouterr().err
    assert whole(["try", *words], INDEX) == 2
    second = capsys.readouterr().err
    head = "Usage: slurm-plugin try [OPTIONS] JOB [ITEM]...\nTry "
    for said in (first, second):
        assert said.startswith(head)
        assert "\n\nError: " in said


def test_both_show_the_same_help(group: LazyGroup, capsys: pytest.CaptureFixture[str]) -> None:
    """In click's form."""
    assert refusal_of(SystemExit, TRY, ["--help"]) == "0"
    assert capsys.readouterr().out == HELP
    assert whole(["try", "-h"], INDEX) == 0
    assert capsys.readouterr().out == HELP


def test_commands_of_nodes_on_the_whole_command_line() -> None:
    """Each one is there, with its options, or with all its words passed on. `hook` and `job` are not shown."""
    group = LazyGroup(COMMANDS)
    context = click.Context(group)
    assert set(COMMANDS) - set(group.list_commands(context)) == {"hook", "job"}
    for name in {*NODE_SIDE} - {"hook", "job"}:
        found = group.get_command(context, name)
        assert found is not None, name
        assert found.name == name
    why = group.get_command(context, "why")
    assert why is not None
    assert [each.name for each in why.params] == ["name", "json", "utc", "directory"]


def test_their_errors_are_messages(capsys: pytest.CaptureFixture[str]) -> None:
    """The same messages as on a node."""
    assert whole(["why", "\x1b"], COMMANDS) == main(["why", "\x1b"]) == 2
    first, second = capsys.readouterr().err.split("slurm-plugin: ")[1:]
    assert first == second


def test_coloured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Colours need a terminal that supports them, and no NO_COLOR."""
    for is_terminal, variables, wanted in [
        (True, {}, True),
        (False, {}, False),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"TERM": "dumb"}, False),
    ]:
        monkeypatch.delenv("NO_COLOR", raising=False)
        monkeypatch.setenv("TERM", "xterm")
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys.stdout, "isatty", lambda is_terminal=is_terminal: is_terminal)
        assert definition.coloured() is wanted, is_terminal


def test_printable() -> None:
    """A foreign text neither controls the terminal nor breaks the line."""
    assert printable("a\x1b[2Jb\nc\rd é") == "a?[2Jb?c?d é"


def ended(redirection: str, *words: str) -> tuple[int, str]:
    """Run `slurm-plugin` with stdout sent elsewhere by a shell. Return the exit code and stderr."""
    text = f'"$0" -m slurm_plugin "$@" {redirection}'
    done = subprocess.run(["bash", "-c", text, sys.executable, *words], capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


OF_NODES = (("hosts", "openmpi", "--nodelist", "n1"), ("hosts", "--help"), ("diagnose", "--list"))


@pytest.mark.parametrize("words", [*OF_NODES, ("example", "single"), ("--help",)])
def test_a_full_disk_below_stdout_is_one_message(words: tuple[str, ...]) -> None:
    """Not a traceback, at the exit of Python neither."""
    code, err = ended(">/dev/full", *words)
    assert (code, err.splitlines()) == (
        1,
        [
            "slurm-plugin: stdout: No space left on device; the output is not complete",
            "  send it to a place with space: df -h .",
        ],
    )


@pytest.mark.parametrize("words", OF_NODES)
def test_a_reader_that_has_gone_is_no_error(words: tuple[str, ...]) -> None:
    """As after `| head`: there is no message."""
    assert ended("| sleep 0; exit ${PIPESTATUS[0]}", *words) in [(definition.BROKEN_PIPE, ""), (0, "")]


@pytest.mark.parametrize("words", OF_NODES)
def test_a_closed_stdout_is_no_error(words: tuple[str, ...]) -> None:
    """A daemon may start a command without one."""
    assert ended(">&-", *words) == (0, "")
