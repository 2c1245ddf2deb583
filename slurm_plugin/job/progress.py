"""Whether a program gets on: a new checkpoint, and what it writes into its log.

A checkpoint directory may be on a server that hangs: it is read in a process of its own, which can be left behind.
"""

import errno
import os
import select
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice

from prechecks.child import REAP_S, Child

DEADLINE_S = 5.0
MOST_ENTRIES = 20_000  # of a checkpoint directory that are looked at
DEEPEST = 4
# What file systems say whose server does not answer: NFS with `soft`, a stale handle, Lustre's eviction, a dead FUSE.
AWAY = frozenset({errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ESHUTDOWN, errno.ENOTCONN, errno.EHOSTDOWN})


def newest(path: str, deadline_s: float = DEADLINE_S) -> float | None:
    """When the newest file under `path` was written, in seconds of the epoch; 0.0 where there is none.

    None where nobody can tell: it could not be read in time, or its server does not answer.
    """
    if not path:
        return 0.0
    try:
        child = Child(lambda _say: repr(_newest(path)).encode())
    except OSError:
        return None
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
    try:
        return float(child.output)
    except ValueError:
        return None


def made(before: float | None, after: float | None) -> bool | None:
    """Whether there is a new checkpoint, by what was newest before and after; None where nobody can tell."""
    return None if before is None or after is None else after > before


@contextmanager
def _passed_over() -> Iterator[None]:
    """What is not there, or not to be read, holds no checkpoint. Raises OSError where a server does not answer."""
    try:
        yield
    except OSError as error:
        if error.errno in AWAY:
            raise


def _newest(path: str) -> float:
    """Only whole files count: directories change when a temporary file goes, too."""
    latest, seen, waiting = 0.0, 0, [(path, 0)]
    with _passed_over():
        found = os.stat(path)  # noqa: PTH116
        if not stat.S_ISDIR(found.st_mode):
            return found.st_mtime
    while waiting and seen < MOST_ENTRIES:
        directory, depth = waiting.pop()
        with _passed_over(), os.scandir(directory) as entries:
            for entry in islice(entries, MOST_ENTRIES - seen):
                seen += 1
                with _passed_over():
                    if entry.is_dir(follow_symlinks=False):
                        if depth < DEEPEST:
                            waiting.append((entry.path, depth + 1))
                    else:
                        latest = max(latest, entry.stat(follow_symlinks=False).st_mtime)
    return latest


def written() -> tuple[int, ...]:
    """How long our stdout and stderr are, which the program writes too; nothing where they are no files."""
    sizes = []
    for fd in (1, 2):
        with suppress(OSError):
            found = os.fstat(fd)
            if stat.S_ISREG(found.st_mode):
                sizes.append(found.st_size)
    return tuple(sizes)
