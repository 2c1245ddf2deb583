"""Where the output of a command goes: the terminal, once or again and again, the user's pager, or a file."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

from prechecks import files
from slurm_plugin.cli.nodeside.definition import Parameter
from slurm_plugin.errors import SlurmPluginError, UsageError, printable
from slurm_plugin.slurm import SlurmError
from slurm_plugin.views import log

LESS: Final = "FRX"  # colours, and no clearing of the screen at the end, as in git


def show(text: str) -> None:
    """Print text; in the pager if it is longer than the terminal."""
    lines = text.splitlines()
    if sys.stdout.isatty() and len(lines) >= shutil.get_terminal_size().lines:
        page(lines)
    else:
        print(text, flush=True)


def page(lines: Iterable[str], command: Callable[[list[str]], list[str]] = list) -> None:
    """Show lines in the pager, and wait until it ends. `command` adds arguments to the pager's own.

    Raises UsageError if the pager does not start.
    """
    try:
        words = shlex.split(os.environ.get("PAGER", "")) or [shutil.which("less") or "cat"]
        process = subprocess.Popen(
            command(words), stdin=subprocess.PIPE, text=True, errors="replace", env={"LESS": LESS, **os.environ}
        )
    except (OSError, ValueError) as error:
        raise UsageError(f"PAGER: {error}\n  without a pager: PAGER=cat slurm-plugin ...") from error
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # the pager handles Ctrl-C
    try:
        with suppress(BrokenPipeError):
            assert process.stdin is not None  # noqa: S101
            for each in lines:
                process.stdin.write(f"{each}\n")
            process.stdin.close()
    finally:
        process.wait()
        signal.signal(signal.SIGINT, before)


HOME, END = "\x1b[H", "\x1b[J"  # the cursor to the first cell; clear the rest of the terminal
CLEAR_LINE: Final = "\x1b[K\n"
EVERY_S: Final = 5.0  # a shorter time would load the controller

WATCH: Final = Parameter("--watch", f"On a terminal: show it again every {EVERY_S:g} s, until Ctrl-C.")


def screen(lines: Sequence[str], height: int) -> str:
    """Return the text that replaces the terminal's content with these lines, as far as they fit."""
    if len(lines) > height - 1 > 1:
        lines = [*lines[: height - 2], f"and {len(lines) - height + 2} lines more"]
    return HOME + CLEAR_LINE.join([*lines, END])


def width() -> int:
    """Return the number of columns of the terminal; 0 if stdout is no terminal, so that nothing is cut."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0


def repeat(look: Callable[[], Sequence[str]], sleep: Callable[[float], None] = time.sleep) -> NoReturn:
    """Show what `look` returns, again and again until Ctrl-C. While Slurm does not answer, show the error."""
    while True:
        try:
            lines = look()
        except SlurmError as error:
            lines = str(error).splitlines()
        print(screen(lines, shutil.get_terminal_size().lines), end="", flush=True)
        sleep(EVERY_S)


STDOUT = Path("-")


def write(path: Path | None, content: str) -> None:
    """Write a file atomically; None and `-`: stdout. Raise SlurmPluginError if it cannot be written."""
    if path in (None, STDOUT):
        sys.stdout.write(content)
        return
    try:
        if path.exists() and not path.is_file():  # /dev/stdout, a pipe: not to be replaced by a file
            path.write_text(content, encoding="utf-8")
        else:
            files.replace(path, content, mode=None)
    except OSError as error:
        raise SlurmPluginError(
            f"{printable(str(path))}: {error.strerror}\n  name a place where you may write: --output FILE"
        ) from error


def write_page(path: Path, content: str, *, opens: str = "a browser") -> None:
    """Write a page, and print its path unless it goes to stdout. `opens`: the program that opens the file."""
    write(path, content)
    if path != STDOUT:
        shown = printable(str(path.absolute()))
        print(f"written: {shown} ({log.size(len(content.encode()))})\n  open it in {opens}; it is one file")
