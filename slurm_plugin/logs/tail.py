"""Read a log of any size, from its end or from a time on, and follow it while it grows. Standard library only.

Users own the logs, and root may read them. So a file is opened without blocking on a pipe, only as much is read as its
size says (/proc/kmsg would block), and root follows no link. Every read opens the path anew: a file server's client
then checks whether the file has changed, and a replaced file is noticed.
"""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from slurm_plugin.logs import lines

BLOCK: Final = 1 << 16
LONGEST: Final = 1 << 20  # bytes of a line that are kept
PROBED: Final = 1 << 20  # bytes that are searched for one time stamp
AT_ONCE: Final = 8 << 20  # bytes that a follower reads in one call
REMEMBERED: Final = 64  # bytes before the end of what was read, to notice a file that was written anew
FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Range(NamedTuple):
    """A part of a file, in bytes."""

    start: int
    end: int


def regular(path: Path) -> int:
    """Open a log and return its descriptor. Raises OSError, also for what is not a regular file."""
    fd = os.open(path, FLAGS | (os.O_NOFOLLOW if os.geteuid() == 0 else 0))
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(0, "is not a regular file", str(path))
    return fd


@contextmanager
def opened(path: Path) -> Iterator[tuple[int, os.stat_result]]:
    """Open a log, with its status. Raises OSError, also for what is not a regular file."""
    fd = regular(path)
    try:
        yield fd, os.fstat(fd)
    finally:
        os.close(fd)


def read(path: Path, part: Range) -> Iterator[bytes]:
    """Yield the lines of a part of a file, without their newlines. Cut the middle out of a very long line.

    The file is open only while a block is read: a merge of the logs of 10,000 ranks has no descriptor for each.
    """
    at, rest = part.start, b""
    while at < part.end:
        with opened(path) as (fd, _):
            block = os.pread(fd, min(BLOCK, part.end - at), at)
        if not block:
            break
        at += len(block)
        *whole, rest = (rest + block).split(b"\n")
        yield from whole
        if len(rest) > LONGEST:
            rest = rest[: lines.LONGEST] + rest[-lines.LONGEST :]
    if rest:
        yield rest


def last_lines(path: Path, part: Range, count: int) -> Range:
    """Return the part with the last `count` lines of a part."""
    if count <= 0 or part.end <= part.start:
        return Range(part.end, part.end)
    with opened(path) as (fd, _):
        at = part.end
        left = count + (os.pread(fd, 1, at - 1) == b"\n")  # the newline that ends the last line
        while at > part.start:
            begin = max(part.start, at - BLOCK)
            block = os.pread(fd, at - begin, begin)
            if (found := block.count(b"\n")) >= left:
                place = len(block)
                for _ in range(left):
                    place = block.rfind(b"\n", 0, place)
                return Range(begin + place + 1, part.end)
            left, at = left - found, begin
    return part


def since(path: Path, part: Range, cutoff: float, time_of: Callable[[bytes], float | None]) -> Range | None:
    """Return the part from about `cutoff` on, by the time stamps of its lines; None if it has no time stamp.

    Return `part` itself if its first time stamp is not before `cutoff`. Else the result begins at a line with a time
    stamp before `cutoff`, or is empty. The times are assumed to rise. Raises OSError.
    """
    first = _stamp(path, part, time_of)
    if first is None or first[1] >= cutoff:
        return part if first else None
    low, high = first[0], part.end
    while high - low > BLOCK:
        middle = (low + high) // 2
        found = _stamp(path, Range(middle, high), time_of)
        if found is None or found[1] >= cutoff:
            high = middle
        else:
            low = found[0]
    return Range(low, part.end)


def _stamp(path: Path, part: Range, time_of: Callable[[bytes], float | None]) -> tuple[int, float] | None:
    """Return the offset and the time of the first line with a time stamp, in the first bytes of a part."""
    at = max(0, part.start - 1)  # with the byte before, a line that begins in the part is no line's rest
    for number, raw in enumerate(read(path, Range(at, min(part.end, at + PROBED)))):
        if (number or not part.start) and (time := time_of(raw)) is not None:
            return at, time
        at += len(raw) + 1
    return None


def marks(path: Path, part: Range, mark: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the offset and the text of each line that begins with `mark`. Raises OSError."""
    at, before = part.start, b"\n"
    with opened(path) as (fd, _):
        while at < part.end and (block := os.pread(fd, min(LONGEST, part.end - at), at)):
            text, place = before + block, -1
            while (place := text.find(b"\n" + mark, place + 1)) >= 0:
                offset = at - len(before) + place + 1
                yield offset, os.pread(fd, lines.LONGEST, offset).split(b"\n", 1)[0]
            at += len(block)
            before = text[-len(mark) :]  # shorter than what is looked for, so nothing is found twice


class Follower:
    """Reads what is appended to a file. The file may be missing at first, and be truncated or replaced later."""

    def __init__(self, path: Path, start: int = 0) -> None:
        self.path, self.offset = path, start
        self._file: tuple[int, int] | None = None
        self._seen = b""  # the last bytes before `offset`
        self._rest = b""  # of a line that has not ended yet

    def poll(self) -> Iterator[bytes]:
        """Yield the lines that ended since the last call, of AT_ONCE bytes at most."""
        with suppress(OSError), opened(self.path) as (fd, found):
            file = (found.st_dev, found.st_ino)
            if found.st_size < self.offset or self._file not in (None, file) or self._rewritten(fd):
                self.offset, self._rest = 0, b""
            self._file = file
            end = min(found.st_size, self.offset + AT_ONCE)
            while block := os.pread(fd, min(BLOCK, end - self.offset), self.offset):
                self.offset += len(block)
                self._seen = (self._seen + block)[-REMEMBERED:]
                *whole, self._rest = (self._rest + block).split(b"\n")
                yield from whole
                if len(self._rest) > LONGEST:
                    self._rest = self._rest[: lines.LONGEST] + self._rest[-lines.LONGEST :]

    def _rewritten(self, fd: int) -> bool:
        """Return whether the file has other bytes now where it was read: it was written anew, and is longer."""
        count = min(len(self._seen), self.offset)
        return bool(count) and os.pread(fd, count, self.offset - count) != self._seen[-count:]

    def rest(self) -> bytes:
        """Return the line that has not ended, at the end of the following."""
        rest, self._rest = self._rest, b""
        return rest
