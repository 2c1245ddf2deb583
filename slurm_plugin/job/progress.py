"""Whether a program gets on: a new checkpoint, and what it writes into its log.

A checkpoint directory may be on a server that hangs: it is read in a process of its own, which can be left behind.
"""

import os
import select
import stat
import time
from contextlib import suppress
from itertools import islice

from prechecks.child import REAP_S, Child

DEADLINE_S = 5.0
MOST_ENTRIES = 20_000  # of a checkpoint directory that are looked at
DEEPEST = 4


def newest(path: str, deadline_s: float = DEADLINE_S) -> float:
    """When the newest file under `path` was written, in seconds of the epoch; 0.0 where none is found in time."""
    if not path:
        return 0.0
    try:
        child = Child(lambda _say: repr(_newest(path)).encode())
    except OSError:
        return 0.0
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
        return 0.0


def _newest(path: str) -> float:
    """Only whole files count: directories change when a temporary file goes, too."""
    latest, seen, waiting = 0.0, 0, [(path, 0)]
    with suppress(OSError):
        found = os.stat(path)  # noqa: PTH116
        if not stat.S_ISDIR(found.st_mode):
            return found.st_mtime
    while waiting and seen < MOST_ENTRIES:
        directory, depth = waiting.pop()
        with suppress(OSError), os.scandir(directory) as entries:
            for entry in islice(entries, MOST_ENTRIES - seen):
                seen += 1
                with suppress(OSError):
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
