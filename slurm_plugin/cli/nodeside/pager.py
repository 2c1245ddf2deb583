"""Long output goes through the user's pager, if stdout is a terminal."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from slurm_plugin.errors import UsageError

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
