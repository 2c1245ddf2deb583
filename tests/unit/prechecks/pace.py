"""Time for tests of hanging checks: a clock that advances only while every child hangs, and growing deadlines."""

import os
import re
import select
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import pytest

from prechecks import runner
from prechecks.child import Child
from tests.waiting import HANG_S

T = TypeVar("T")
DEADLINES_S = (0.5, 4.0, 32.0, HANG_S)
SLICE_MS = 5


def given_time(look: Callable[[float], T], there: Callable[[T], object]) -> T:
    """Call `look` with growing deadlines. Return its first result for which `there` is true, else the last result."""
    for deadline_s in DEADLINES_S:
        found = look(deadline_s)
        if there(found):
            break
    return found


def descriptors() -> dict[int, str]:
    """Return the open descriptors of this process, with their targets."""
    found: dict[int, str] = {}
    for number in range(4096):
        with suppress(FileNotFoundError):
            found[number] = str(Path(f"/proc/self/fd/{number}").readlink())
    return found


def at_once(message: str) -> str:
    """Return a counter's message as if no time had passed between two checks."""
    return re.sub(r" in \d+ (s|min|h) >", " in 0 s >", message)


class RunnersTime:
    """The runner's clock and poll. Time advances only in a poll whose children all hang, by the poll's limit."""

    POLLIN = select.POLLIN

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.start = self.now = time.monotonic()
        self._directory = directory
        self._pids: dict[int, int] = {}
        begin = Child.__init__

        def noted(child: Child, *words: Any) -> None:
            begin(child, *words)
            self._pids[child.pipe] = child.pid

        monkeypatch.setattr(Child, "__init__", noted)
        monkeypatch.setattr(runner, "time", self)
        monkeypatch.setattr(runner, "select", self)

    @property
    def passed(self) -> float:
        """The seconds since the start."""
        return self.now - self.start

    def monotonic(self) -> float:
        return self.now

    def note(self) -> Path:
        """Return the file that marks the calling child as hanging."""
        return self._directory / f"hangs-{os.getpid()}"

    def hang(self) -> NoReturn:
        """Hang, in a child."""
        self.note().touch()
        while True:
            time.sleep(3600)

    def poll(self) -> "_Poll":
        return _Poll(self)

    def all_hang(self, pipes: set[int]) -> bool:
        """Return whether all these children hang."""
        return all((self._directory / f"hangs-{self._pids[pipe]}").exists() for pipe in pipes)


class _Poll:
    """A poll that uses the runner's clock."""

    def __init__(self, time_: RunnersTime) -> None:
        self._time, self._real, self._pipes = time_, select.poll(), set[int]()

    def register(self, pipe: int, mask: int) -> None:
        self._pipes.add(pipe)
        self._real.register(pipe, mask)

    def unregister(self, pipe: int) -> None:
        self._pipes.remove(pipe)
        self._real.unregister(pipe)

    def poll(self, limit_ms: float) -> list[tuple[int, int]]:
        hang = self._time.all_hang(self._pipes)  # ask before the poll: a hanging child has already written its output
        found = self._real.poll(0 if hang else SLICE_MS)
        if hang and not found:
            self._time.now += limit_ms / 1000
        return found
