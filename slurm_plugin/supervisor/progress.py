"""The progress of a program: new checkpoints, and the size of its log.

A checkpoint directory may be on a server that hangs. So a child process reads it, which this process can abandon.
"""

import errno
import heapq
import json
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from typing import NamedTuple

from prechecks.child import Child

DEADLINE_S = 5.0
MOST_ENTRIES = 20_000  # read at most this many entries of a checkpoint directory
DEEPEST = 4
AHEAD_S = 86400.0  # more than the clock of a file server differs
# Errors of file systems if the server does not answer: NFS with `soft`, a stale handle, Lustre's eviction, a dead FUSE.
AWAY = frozenset({errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ESHUTDOWN, errno.ENOTCONN, errno.EHOSTDOWN})


class Newest(NamedTuple):
    """The time of the newest file that was found, and whether some places were not read."""

    at: float = 0.0  # when the newest file was written, in seconds since the epoch; 0.0 without a file
    away: frozenset[str] = frozenset()  # places whose server does not answer
    slow: bool = False  # whether not everything could be read in time
    cut: bool = False  # whether there were more than MOST_ENTRIES: the rest, in older directories, was not read

    @property
    def whole(self) -> bool:
        """Whether everything was read."""
        return not (self.away or self.slow or self.cut)


def newest(path: str, deadline_s: float = DEADLINE_S) -> Newest:
    """Return the newest file under `path`. If nothing was read within `deadline_s`, `path` is `away`."""
    if not path:
        return Newest()
    try:
        child = Child(lambda say: _walk(path, lambda found: say(json.dumps(found).encode() + b"\n")))
    except OSError:
        return Newest(slow=True)
    child.collect(child.start + deadline_s)
    *lines, _cut_off = child.output.split(b"\n")
    if not lines:
        return Newest(away=frozenset({path}))
    found = [json.loads(line) for line in lines]
    at = max((each for each in found if isinstance(each, float)), default=0.0)
    away, cut = frozenset(each for each in found if isinstance(each, str)), any(each is True for each in found)
    return Newest(at, away, slow=not cut and None not in found, cut=cut)


def has_new_checkpoint(before: Newest, after: Newest) -> bool | None:
    """Return whether there is a new checkpoint, from the newest files before and after; None if unknown.

    A file newer than all earlier files is a new checkpoint, unless the first read may have missed it.
    """
    if after.at > before.at:
        return True if not before.slow and before.away <= after.away else None
    return False if after.whole else None


def _walk(path: str, say: Callable[[float | str | None], None]) -> bytes:
    """Report the time of each file newer than all before, each place whose server does not answer, and None at the end.

    Report True in place of None if there are more than MOST_ENTRIES. Read the newest directories first, as the others
    have only older checkpoints.
    Ignore the times of directories: they also change when a temporary file is removed. Ignore a time in the future, as
    of an unpacked file: it would hide all later checkpoints.
    """
    most = time.time() + AHEAD_S

    @contextmanager
    def skip_unreadable(place: str) -> Iterator[None]:
        """Ignore missing and unreadable entries, and report a place whose server does not answer."""
        try:
            yield
        except OSError as error:
            if error.errno in AWAY:
                say(place)

    latest, seen, waiting = 0.0, 0, [(0.0, path, 0)]
    with skip_unreadable(path):
        found = os.stat(path)  # noqa: PTH116
        if not stat.S_ISDIR(found.st_mode):
            say(found.st_mtime if found.st_mtime <= most else latest)
            waiting = []
    say(latest)
    while waiting and seen < MOST_ENTRIES:
        _, directory, depth = heapq.heappop(waiting)
        with skip_unreadable(directory), os.scandir(directory) as entries:
            for entry in islice(entries, MOST_ENTRIES - seen):
                seen += 1
                with skip_unreadable(entry.path):
                    if entry.is_dir(follow_symlinks=False):
                        if depth < DEEPEST:
                            changed_at = entry.stat(follow_symlinks=False).st_mtime
                            heapq.heappush(waiting, (-changed_at, entry.path, depth + 1))
                    elif latest < (written_at := entry.stat(follow_symlinks=False).st_mtime) <= most:
                        say(latest := written_at)
    say(True if seen >= MOST_ENTRIES else None)
    return b""


def written() -> tuple[int, ...]:
    """Return the sizes of this process's stdout and stderr, which the program shares. Skip all but regular files."""
    sizes = []
    for fd in (1, 2):
        with suppress(OSError):
            found = os.fstat(fd)
            if stat.S_ISREG(found.st_mode):
                sizes.append(found.st_size)
    return tuple(sizes)
