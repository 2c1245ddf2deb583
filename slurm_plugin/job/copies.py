"""Copies of data on a node's own disk, made for `stage_in:` by the job's user.

Below the site's directory, which is like /tmp, each user has one of their own, named by uid (0700):

    <uid>/<fingerprint>/data      a copy, whole as soon as it has that name; `new` while it is made
    <uid>/<fingerprint>/.used     touched by every job that uses it: slurm_plugin.hooks.datasets removes by its age
    <uid>/<job>.<restart>/<to>    a link to a copy: what SLURM_PLUGIN_DATA names; and a stamp of its own

The fingerprint is of the source's path and of every size and time below it: a source that was changed is another one.
Who copies or removes holds a lock on the copy's directory. No `to` begins with a dot: such names are ours.
"""

import ctypes
import fcntl
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final

from prechecks import units
from slurm_plugin.hooks import removal
from slurm_plugin.job import dataset
from slurm_plugin.job.dataset import NodeError, SourceError
from slurm_plugin.job.log import say
from slurm_plugin.job.stage_in import KEYWORD, Request, tell

DATA, FRESH, USED = "data", "new", ".used"
WAITS: Final = "another job copies it; this one waits"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def fetch(request: Request, environ: Mapping[str, str]) -> int:
    """Have all of it on this node; 0, or 1 with what is wrong in the log."""
    node = environ.get("SLURMD_NODENAME") or os.uname().nodename
    try:
        own = _own(request.directory)
        run = f"{own}/{request.run}"
        with suppress(FileExistsError):
            os.mkdir(run, 0o700)  # noqa: PTH102
        for to, _, source in (each.partition(":") for each in request.wanted):
            text = _one(own, to, os.path.realpath(source), run, f"{node} {KEYWORD}: {to}: {WAITS}")
            say(f"{node} {KEYWORD}: ok: {to}: {text}")
        _touch(run)
    except SourceError as error:
        say(f"{node} {KEYWORD}: failed: {error}")
        return 1
    except (NodeError, OSError) as error:
        why = dataset.words(error) if isinstance(error, OSError) else str(error)
        say(f"{node} {KEYWORD}: failed: {why}; another node may have it")
        with suppress(OSError):
            tell(request.notes, node, why)
        return 1
    return 0


def _own(directory: str) -> str:
    """The user's directory there. Raises NodeError where the site's is not as it has to be."""
    try:
        os.close(removal.open_shared(directory))
    except OSError as error:
        raise NodeError(f"{directory}: {error.strerror}; its admin: install -d -m 1777 {directory}") from error
    own = f"{directory}/{os.geteuid()}"
    with suppress(FileExistsError):
        os.mkdir(own, 0o700)  # noqa: PTH102
    found = os.lstat(own)
    if found.st_uid == 0 != os.geteuid():
        raise NodeError(f"{own} is root's; its admin has to remove it")
    if found.st_uid != os.geteuid():
        raise NodeError(f"{own} is not yours: uid {found.st_uid} has made it; the next periodic check takes it away")
    if not stat.S_ISDIR(found.st_mode) or found.st_mode & 0o077:
        raise NodeError(f"{own} is no directory that only you can enter; move it away on this node")
    return own


def _one(own: str, to: str, source: str, run: str, waits: str) -> str:
    """Have one of them there, and the run's link to it; what was done, in words."""
    start = time.monotonic()
    entries = dataset.listed(source)
    key = dataset.fingerprint(source, entries)
    place = f"{own}/{key}"
    with _locked(place, lambda: say(waits)) as fd:
        there = os.path.lexists(f"{place}/{DATA}")
        if not there:
            _copied(place, fd, source, entries)
        _touch(place)
        _link(f"../{key}/{DATA}", run, to)
    what = f"{sum(each.kind == 'file' for each in entries)} files, {units.size(sum(each.size for each in entries))}"
    return f"{what}, {'there already' if there else 'copied'} ({time.monotonic() - start:.1f} s)"


def _copied(place: str, fd: int, source: str, entries: list[dataset.Entry]) -> None:
    """Copy it, and give it its name once it is on the disk. Nothing is left of one that fails."""
    fresh = f"{place}/{FRESH}"
    _remove(fresh)  # of a job that was ended meanwhile
    found = os.fstatvfs(fd)
    needed, free = dataset.room(entries, found.f_frsize), found.f_bavail * found.f_frsize
    if needed > free or (found.f_files and len(entries) > found.f_favail):
        left = f"{units.size(free)} and {found.f_favail} inodes are free"
        raise NodeError(f"{place}: {left}, {source!a} needs {units.size(needed)} and {len(entries)}")
    try:
        dataset.copy(source, entries, fresh)
        _sync(fd)
    except BaseException:
        _remove(fresh)
        raise
    os.rename(fresh, f"{place}/{DATA}")  # noqa: PTH104


@contextmanager
def _locked(place: str, waits: Callable[[], None]) -> Iterator[int]:
    """The directory of a copy, made where it is missing, held by nobody else."""
    while True:
        with suppress(FileExistsError):
            os.mkdir(place, 0o700)  # noqa: PTH102
        try:
            fd = os.open(place, _DIRECTORY)
        except FileNotFoundError:  # removed meanwhile
            continue
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waits()
                fcntl.flock(fd, fcntl.LOCK_EX)
            if _is(place, fd):
                yield fd
                return
        finally:
            os.close(fd)


def _is(place: str, fd: int) -> bool:
    """Whether an open directory is the one of that name."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.lstat(place), os.fstat(fd))
    return False


def _link(target: str, directory: str, name: str) -> None:
    fresh = f"{directory}/.{name}.{os.getpid()}"
    with suppress(FileNotFoundError):
        os.unlink(fresh)  # noqa: PTH108 - of a process with this number that was killed there
    os.symlink(target, fresh)  # noqa: PTH211
    os.replace(fresh, f"{directory}/{name}")  # noqa: PTH105


def _touch(place: str) -> None:
    """Say that it is used now."""
    fd = os.open(f"{place}/{USED}", os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    os.utime(fd)
    os.close(fd)


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114
        shutil.rmtree(path)
    else:
        with suppress(FileNotFoundError):
            os.unlink(path)  # noqa: PTH108


def _sync(fd: int) -> None:
    """All of the file system on the disk (syncfs(2)): fsync for each of a million files takes hours. Raises OSError."""
    if ctypes.CDLL(None, use_errno=True).syncfs(fd):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
