"""Run a program on a terminal of its own, and read what it shows."""

import os
import pty
import subprocess
import termios
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).parents[1]
CHANGED = ("LESS", "LINES", "COLUMNS", "NO_COLOR", "PAGER", "EDITOR", "VISUAL")


def on_a_terminal(
    argv: Sequence[str], environ: Mapping[str, str], *, typed: str = "", lines: int = 24, cwd: Path | None = None
) -> tuple[str, int]:
    """Return what a terminal shows of a program, and its exit code. `typed`: its input, which the terminal echoes."""
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (lines, 200))
    kept = {name: value for name, value in os.environ.items() if name not in CHANGED}
    given = {**kept, "PYTHONPATH": str(ROOT), "TERM": "xterm", **environ}
    with subprocess.Popen(
        argv, stdin=slave, stdout=slave, stderr=slave, env=given, cwd=cwd, start_new_session=True
    ) as process:
        os.close(slave)
        os.write(master, typed.encode())
        shown = b""
        with suppress(OSError):  # the terminal is closed at the end
            while block := os.read(master, 4096):
                shown += block
        code = process.wait()
    os.close(master)
    return shown.decode().replace("\r\n", "\n"), code
