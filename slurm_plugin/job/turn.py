"""Whose turn it is: a file in the job's directory that names the run which may write now.

A run whose nodes were cut off from Slurm, all together, may still reach the job's files when Slurm has begun the next
run elsewhere. That one writes its own number here and waits `WAIT_S`; the first node of the old one sees it within
`LOOK_S` and ends its ranks. Where the old run cannot read the file any more, it cannot write the others either.
"""

import os
import stat
import time
from contextlib import suppress
from pathlib import Path

from slurm_plugin.job import files

NAME = "turn"
LOOK_S = 1.0
WAIT_S = 3.0
SEEN, LOST = b"s", b"x"
_MOST_BYTES = 512


def take(directory: Path, restart: int, attempt: int, cluster: str = "") -> None:
    """Say that it is this run's turn, and which attempt of the job it makes. Raises OSError."""
    files.write(directory / NAME, f"{restart} {attempt} {cluster}".rstrip() + "\n")


def taken(directory: str | Path, cluster: str = "") -> tuple[int, int]:
    """The run whose turn it is, and its last attempt; -1 and -1 where nobody of this cluster has said so."""
    try:
        fd = os.open(f"{directory}/{NAME}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return -1, -1
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():  # what others put there is no word of ours
            return -1, -1
        restart, attempt, *name = os.read(fd, _MOST_BYTES).decode(errors="replace").split(maxsplit=2)
        return (-1, -1) if files.theirs("".join(name), cluster) else (int(restart), int(attempt))
    except (OSError, ValueError):
        return -1, -1
    finally:
        os.close(fd)


def watched(directory: str, restart: int, cluster: str = "", *, seen: bool = False) -> int:
    """A descriptor that gives `SEEN` when it is this run's turn, `LOST` when a later one takes it; it ends where who
    looks is ended. `seen`: whether it has been seen before.

    A later number that stands there from before is no later run: this one has taken no turn.

    A process of its own looks: reading a file on a server that hangs must not keep the guard from its beats, nor its
    step from its end.
    """
    read, write = os.pipe()
    guard = os.getpid()
    if os.fork():
        os.close(write)
        return read
    try:
        with suppress(OSError):
            null = os.open(os.devnull, os.O_RDWR)
            for standard in (0, 1, 2):
                os.dup2(null, standard)
            os.close(read)
            while os.getppid() == guard:
                now = taken(directory, cluster)[0]
                if now == restart and not seen:
                    seen = bool(os.write(write, SEEN))
                if seen and now > restart:
                    os.write(write, LOST)
                    break
                time.sleep(LOOK_S)
    finally:
        os._exit(0)
