"""Find and take the requests in `requests/` of a job's directory, where other users write files of any kind.

A request is taken by renaming its file into the job's directory, which no other user can change. Then it is opened
and read once, and the check is about what was read. A file counts if it is a regular file with one name, owned by the
user whose uid is in its name.
"""

import os
import random
import stat
import time
from contextlib import suppress
from itertools import islice
from typing import Final, NamedTuple

from prechecks import files
from slurm_plugin.records import requests
from slurm_plugin.supervisor.share.access import opened

MOST_NAMES: Final = 100_000  # names that one call reads
MOST_FILES: Final = 1000  # files whose owner one call reads; others wait
WAITING: Final = 8  # requests of one user; later ones are dropped
_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Letter(NamedTuple):
    """A taken file: its name, its owner, and its content, or why it is no request."""

    name: str
    uid: int
    data: bytes = b""
    wrong: str = ""


def look(job: int) -> tuple[list[Letter], int]:
    """Take the oldest file of each user. Return these files, and how many others were dropped.

    `job`: the job's open directory. Each call opens `requests/` again, so that a file server gives its present content.
    """
    letters: list[Letter] = []
    dropped = 0
    with suppress(OSError), opened(requests.DIRECTORY, job) as fd:
        with os.scandir(fd) as entries:
            names = sorted(each.name for each in islice(entries, MOST_NAMES) if requests.asker(each.name) is not None)
        if len(names) > MOST_FILES:  # at random, so that one user's files cannot hide those of others
            names = sorted(random.sample(names, MOST_FILES))
        known: dict[int, int] = {}
        for name in names:
            with suppress(OSError):
                found = os.stat(name, dir_fd=fd, follow_symlinks=False)
                if stat.S_ISDIR(found.st_mode):
                    continue
                uid = found.st_uid
                known[uid] = known.get(uid, 0) + 1
                if known[uid] == 1:
                    letters += [letter] if (letter := _take(job, fd, name)) else []
                elif known[uid] > WAITING:
                    os.unlink(name, dir_fd=fd)
                    dropped += 1
    return letters, dropped


def clear(job: int) -> None:
    """Remove all files in `requests/`: the run has ended, and a later run must not carry them out."""
    with suppress(OSError), opened(requests.DIRECTORY, job) as fd, os.scandir(fd) as entries:
        for entry in islice(entries, MOST_NAMES):
            with suppress(OSError):
                os.unlink(entry.name, dir_fd=fd)


def _take(job: int, directory: int, name: str) -> Letter | None:
    """Take one file. Return None if it is gone, or if a directory has replaced it."""
    mine = f".{requests.DIRECTORY}.{time.monotonic_ns()}"  # a name that job_directory.is_ours accepts
    try:
        os.rename(name, mine, src_dir_fd=directory, dst_dir_fd=job)
        found = os.stat(mine, dir_fd=job, follow_symlinks=False)
    except OSError:
        return None
    if stat.S_ISDIR(found.st_mode):  # it may have content that cannot be removed
        with suppress(OSError):
            os.rename(mine, name, src_dir_fd=job, dst_dir_fd=directory)
        return None
    uid = found.st_uid
    try:
        try:
            fd = os.open(mine, _FLAGS, dir_fd=job)
        except OSError as error:
            return Letter(name, uid, wrong=f"it cannot be read: {error.strerror}")
        with files.Opened(fd):
            return _read(name, fd)
    finally:
        with suppress(OSError):
            os.unlink(mine, dir_fd=job)


def _read(name: str, fd: int) -> Letter:
    found = os.fstat(fd)
    uid = found.st_uid
    if not stat.S_ISREG(found.st_mode):
        return Letter(name, uid, wrong="it is no regular file")
    if found.st_nlink != 1:
        return Letter(name, uid, wrong="it has other names (hard links)")
    if uid != requests.asker(name):
        return Letter(name, uid, wrong="its name has another user's number")
    try:
        return Letter(name, uid, os.pread(fd, requests.MOST_BYTES + 1, 0))
    except OSError as error:
        return Letter(name, uid, wrong=f"it cannot be read: {error.strerror}")
