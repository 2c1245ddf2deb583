"""Search the lines of a trial's log with the user's regular expression, in a child process with a limit.

`re` holds the GIL, and some expressions never end: in the worker itself, no signal would be handled meanwhile.
Standard library only.
"""

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

LONGEST_LINE: Final = 1 << 16  # bytes at the end of a line that are searched
LONGEST_PIECE: Final = 1 << 12  # bytes at the end of what a carriage return ends
BATCH: Final = 1 << 17  # bytes that one child searches, and at most one line more
SEARCH_S: Final = 10.0  # processor time of a child
TIMEOUT_S: Final = 300.0  # wall-clock time of a child: the node may be busy
TRIES: Final = 3  # if a child ends otherwise: the node has no memory, or Slurm signals all processes of the step
_OURS: Final = b"[slurm_plugin] "  # lines of slurm_plugin in the log
# The kernel ends this process after its time, also if the worker is gone. Of a progress bar the last value counts.
_CHILD: Final = """
import json, re, signal, sys
signal.signal(signal.SIGPROF, signal.SIG_DFL)
regex, seconds, lines = json.load(sys.stdin.buffer)
signal.setitimer(signal.ITIMER_PROF, seconds)
pattern = re.compile(regex)
def value(pieces):
    for piece in reversed(pieces):
        for match in reversed(list(pattern.finditer(piece))):
            try:
                return float(match[1])
            except (ValueError, TypeError, IndexError):
                pass
print(json.dumps([value(pieces) for pieces in lines]))
"""


class LogValues:
    """Finds the metric's values in the lines of one trial's log."""

    def __init__(self, regex: str, say: Callable[[str], None]) -> None:
        """Take the expression. Raise re.error."""
        re.compile(regex)
        self._regex, self._say, self._is_on = regex, say, True

    def of(self, lines: Iterable[tuple[bytes, int]]) -> Iterator[tuple[float, int]]:
        """Yield the value of each line that has one, with the line's number. Of a progress bar the last value counts.

        If the search takes too long, it is switched off.
        """
        for batch in _batches(lines):
            values = self._searched([pieces for pieces, _ in batch]) if self._is_on else []
            yield from ((value, at) for value, (_, at) in zip(values, batch, strict=False) if value is not None)

    def _searched(self, lines: list[list[str]]) -> list[float | None]:
        text, why = json.dumps([self._regex, SEARCH_S, lines]).encode(), ""
        for _ in range(TRIES):
            try:
                words = [sys.executable, "-I", "-S", "-c", _CHILD]
                done = subprocess.run(words, input=text, capture_output=True, timeout=TIMEOUT_S, check=False)
                if done.returncode == 0:
                    found: list[float | None] = json.loads(done.stdout)
                    return found
                why = f"its process ended with {done.returncode}"
                if done.returncode == -signal.SIGPROF:
                    why = f"it took more than {SEARCH_S:.0f} s for {len(text) // 1024 + 1} KiB"
                    break
            except (OSError, subprocess.TimeoutExpired) as error:
                why = str(error)[:200]
            time.sleep(1)
        self._is_on = False
        self._say(f"the metric's regex is switched off for this trial: {why}; write a simpler one, such as loss=(\\S+)")
        return []


def _batches(lines: Iterable[tuple[bytes, int]]) -> Iterator[list[tuple[list[str], int]]]:
    """Yield lines in pieces, as many as one child searches."""
    batch: list[Any] = []
    size = 0
    for line, at in lines:
        pieces = [] if line.startswith(_OURS) else line[-LONGEST_LINE:].split(b"\r")
        if texts := [piece[-LONGEST_PIECE:].decode(errors="replace") for piece in pieces if piece]:
            batch.append((texts, at))
            size += sum(map(len, texts))
        if size > BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
