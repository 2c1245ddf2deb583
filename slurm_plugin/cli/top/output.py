"""The right side of the screen: the output of another command, in a process of its own.

A file server that hangs stops only that process. Its output is never markup, and only its end is kept.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from rich.text import Text
from textual.widgets import RichLog

MOST_LINES: Final = 2000  # that are kept
BLOCK: Final = 1 << 16  # bytes that are read together
CALM_S: Final = 0.3  # the wait for the end of a row of keys, before a command is started
PAUSE_S: Final = 0.05  # pause that lets keys work while a command writes without end
LOG_LINES: Final = 500  # of a log, before those that come
ANSWER_S: Final = 90.0  # for a command that changes something


class Output(RichLog):
    """The output of one command at a time."""

    def __init__(self, name: str) -> None:
        """`name`: the id of the widget."""
        super().__init__(id=name, max_lines=MOST_LINES, wrap=True, markup=False)
        self._following: asyncio.Task[None] | None = None

    def run(self, argv: Sequence[str]) -> None:
        """Show what this command writes from now on, in place of any other."""
        self.end()
        self.clear()
        self._following = asyncio.create_task(self._follow(argv))

    def end(self) -> None:
        """End the command."""
        if self._following:
            self._following.cancel()

    async def _follow(self, argv: Sequence[str]) -> None:
        await asyncio.sleep(CALM_S)
        process = await started(argv)
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        rest = b""
        try:
            while block := await process.stdout.read(BLOCK):
                *lines, rest = (rest + block).split(b"\n")
                for line in lines[-MOST_LINES:]:
                    self._add(line)
                rest = rest[-BLOCK:]
                await asyncio.sleep(PAUSE_S)
            if rest:
                self._add(rest)
        finally:
            with suppress(ProcessLookupError):
                process.kill()

    def _add(self, line: bytes) -> None:
        self.write(Text(line.decode(errors="replace")))


async def started(argv: Sequence[str]) -> asyncio.subprocess.Process:
    """Start a command whose stderr goes to its stdout."""
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        *argv, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=asyncio.subprocess.STDOUT
    )


async def answer(argv: Sequence[str]) -> tuple[bool, str]:
    """Run a command, and return whether it succeeded, and what it wrote."""
    process = await started(argv)
    try:
        said, _ = await asyncio.wait_for(process.communicate(), ANSWER_S)
    except TimeoutError:
        process.kill()
        return False, f"no answer in {ANSWER_S:g} s"
    return process.returncode == 0, said.decode(errors="replace").strip()


def of_job(view: str, name: str) -> tuple[str, ...]:
    """Return the words of the command that shows a job's `log`, `why` or `history`."""
    return ("logs", name, "--follow", "--tail", str(LOG_LINES)) if view == "log" else (view, name)


def of_node(view: str, name: str) -> tuple[str, ...]:
    """Return the words of the command that shows a node. It has no log."""
    return ("nodes", "--history", name) if view == "history" else ("why", name)
