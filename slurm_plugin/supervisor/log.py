"""Write the `[slurm_plugin]` lines into the job's log. Each line is whole and stays between the program's lines.

Writing never raises and never blocks for long. On a full disk, at a quota or with a stopped reader only these lines are
lost. For a script without a mode the lines go to a file, and to the script's output only after a failure.
"""

import os
import select
import sys
import time
from contextlib import suppress
from pathlib import Path

WAIT_S = 5.0
FILE = "log"  # in the job's directory

_apart: list[Path] = []  # the file in use; empty: write to the output


class _Log:
    """Writes to stdout. For a pipe whose reader has stopped, all lines of a process together wait at most `left_s`."""

    def __init__(self, left_s: float) -> None:
        self.left_s = left_s

    def write(self, line: str) -> None:
        with suppress(OSError, ValueError):
            if self._full():
                return
            sys.stdout.write(f"{line}\n")  # print() would write the newline separately
            sys.stdout.flush()  # after an error the text stays in the buffer, for the next flush

    def _full(self) -> bool:
        try:
            fd = sys.stdout.fileno()
        except (OSError, ValueError):  # stdout has no descriptor
            return False
        began = time.monotonic()
        taken = select.select((), (fd,), (), max(0.0, self.left_s))[1]  # a regular file is always writable
        self.left_s -= time.monotonic() - began
        return not taken


_LOG = _Log(WAIT_S)


def say(text: str) -> None:
    """Write one line that begins with `[slurm_plugin]`."""
    write(f"[slurm_plugin] {text}")


def write(line: str) -> None:
    """Write one line without a prefix."""
    if not (_apart and _append(_apart[0], f"{line}\n")):
        _LOG.write(line)


def keep_apart(directory: Path, *, fresh: bool = True) -> None:
    """Write the following lines to a file in the job's directory, until `show` is called. `fresh`: begin a new file."""
    _apart[:] = [directory / FILE]
    if not fresh:
        return
    try:
        _apart[0].unlink(missing_ok=True)  # left by another cluster's job with this number, or by an old job
    except OSError:
        _apart.clear()


def show() -> None:
    """Copy the lines of the file to the output, and write all following lines there. For use after a failure."""
    while _apart:
        try:
            text = _apart.pop().read_text(encoding="utf-8", errors="replace")
        except OSError:
            return
        for line in text.splitlines():
            _LOG.write(line)


def close() -> None:
    """Drop unwritten text. Otherwise Python would try to write it at exit and return 120."""
    for fd, stream in ((1, sys.stdout), (2, sys.stderr)):
        try:
            stream.flush()
        except (OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), fd)


def copy(piece: bytes, fd: int) -> None:
    """Write a piece of a program's output to `fd`. On a full disk the piece is lost, and the program continues."""
    while piece:
        try:
            piece = piece[os.write(fd, piece) :]
        except BlockingIOError:  # a process that shares the descriptor made it non-blocking
            select.select((), (fd,), ())
        except OSError:
            return


def _append(path: Path, text: str) -> bool:
    """Append the text to the file. Return whether this succeeded."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        with os.fdopen(fd, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except OSError:
        return False
    return True
