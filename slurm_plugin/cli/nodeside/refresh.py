"""Show a text on a terminal again and again, without flicker. `--watch` of every command uses it."""

import shutil
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final, NoReturn

from slurm_plugin.cli.definition import Parameter
from slurm_plugin.slurm import SlurmError

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
