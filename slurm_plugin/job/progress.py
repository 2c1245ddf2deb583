"""Whether a program gets on: a new checkpoint, and what it writes into its log.

A checkpoint directory may be on a server that hangs: it is read in a process of its own, which can be left behind.
"""

import errno
import json
import os
import select
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from typing import NamedTuple

from prechecks.child import REAP_S, Child

DEADLINE_S = 5.0
MOST_ENTRIES = 20_000  # of a checkpoint directory that are looked at
DEEPEST = 4
# What file systems say whose server does not answer: NFS with `soft`, a stale handle, Lustre's eviction, a dead FUSE.
AWAY = frozenset({errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ESHUTDOWN, errno.ENOTCONN, errno.EHOSTDOWN})


class Newest(NamedTuple):
    """The newest file that was seen, and what could not be looked at beside it."""

    at: float = 0.0  # when it was written, in seconds of the epoch; 0.0 without one
    away: frozenset[str] = frozenset()  # places whose server does not answer
    slow: bool = False  # whether there was more than could be looked at in time

    @property
    def whole(self) -> bool:
        """Whether all was looked at."""
        return not (self.away or self.slow)


def newest(path: str, deadline_s: float = DEADLINE_S) -> Newest:
    """The newest file under `path`. A server that says nothing at all of it in time does not answer."""
    if not path:
        return Newest()
    try:
        child = Child(lambda say: _walk(path, lambda found: say(json.dumps(found).encode() + b"\n")))
    except OSError:
        return Newest(slow=True)
    end = time.monotonic() + deadline_s
    try:
        while child.open and (left := end - time.monotonic()) > 0:
            if select.select([child.pipe], [], [], left)[0]:
                child.read()
        if child.open:
            child.kill()
        child.wait(time.monotonic() + REAP_S)
    finally:
        child.close()
    *lines, _cut_off = child.output.split(b"\n")
    if not lines:
        return Newest(away=frozenset({path}))
    found = [json.loads(line) for line in lines]
    at = max((each for each in found if isinstance(each, float)), default=0.0)
    return Newest(at, frozenset(each for each in found if isinstance(each, str)), slow=None not in found)


def newest_of(paths: Iterable[str]) -> Newest:
    """The newest file under any of them, and all that could not be looked at."""
    found = [newest(path) for path in paths]
    away = frozenset(place for each in found for place in each.away)
    return Newest(max((each.at for each in found), default=0.0), away, any(each.slow for each in found))


def made(before: Newest, after: Newest) -> bool | None:
    """Whether there is a new checkpoint, by what was newest before and after; None where nobody can tell.

    A file that is newer than all before is one, unless it may have stood where only the later look could look.
    """
    if after.at > before.at:
        return True if not before.slow and before.away <= after.away else None
    return False if after.whole else None


def _walk(path: str, say: Callable[[float | str | None], None]) -> bytes:
    """Say when a file was written, for each that is newer than all before, what cannot be looked at, None at the end.

    Only whole files count: directories change when a temporary file goes, too.
    """

    @contextmanager
    def passed_over(place: str) -> Iterator[None]:
        """What is not there, or not to be read, holds no checkpoint; where a server does not answer, who knows."""
        try:
            yield
        except OSError as error:
            if error.errno in AWAY:
                say(place)

    latest, seen, waiting = 0.0, 0, [(path, 0)]
    with passed_over(path):
        found = os.stat(path)  # noqa: PTH116
        if not stat.S_ISDIR(found.st_mode):
            say(found.st_mtime)
            waiting = []
    say(latest)
    while waiting and seen < MOST_ENTRIES:
        directory, depth = waiting.pop()
        with passed_over(directory), os.scandir(directory) as entries:
            for entry in islice(entries, MOST_ENTRIES - seen):
                seen += 1
                with passed_over(entry.path):
                    if entry.is_dir(follow_symlinks=False):
                        if depth < DEEPEST:
                            waiting.append((entry.path, depth + 1))
                    elif (written_at := entry.stat(follow_symlinks=False).st_mtime) > latest:
                        say(latest := written_at)
    say(None)
    return b""


def written() -> tuple[int, ...]:
    """How long our stdout and stderr are, which the program writes too; nothing where they are no files."""
    sizes = []
    for fd in (1, 2):
        with suppress(OSError):
            found = os.fstat(fd)
            if stat.S_ISREG(found.st_mode):
                sizes.append(found.st_size)
    return tuple(sizes)
