"""Copies of data on a node's own disk, made for `stage_in:` by the job's user.

Below the site's directory, which is like /tmp, each user has a directory named by uid (0700):

    <uid>/<fingerprint>/data      a copy, complete as soon as it has that name; `new` while it is made
    <uid>/<fingerprint>/.seal     the seal of the finished copy: if it differs, the copy is damaged and is made again
    <uid>/<fingerprint>/.used     touched by every job that uses the copy: copies are removed by the age of this file
    <uid>/<job>.<restart>/<to>    a link to a copy, for SLURM_PLUGIN_DATA; this directory has a `.used`, too

The fingerprint covers the source's path and every size and time below it, so a changed source gets a new copy. A
process that makes or removes a copy locks its directory. Root removes old copies (slurm_plugin.node.stage_in_expiry);
where no admin has installed slurm_plugin, the user's next job on the node does. No `to` begins with a dot.
"""

import ctypes
import fcntl
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final

from prechecks import files
from prechecks.verdict import format_size
from slurm_plugin.records import node_directory
from slurm_plugin.records.node_directory import DATA, USED
from slurm_plugin.records.stage_in import KEYWORD, Request, write_note
from slurm_plugin.supervisor.guard import processes
from slurm_plugin.supervisor.log import say
from slurm_plugin.supervisor.staging import dataset
from slurm_plugin.supervisor.staging.dataset import NodeError, SourceError

FRESH, SEAL = "new", ".seal"
REMOVE_S: Final = 30.0  # for old copies; the program waits for that
_OURS: Final = re.compile(r"[0-9a-f]{32}|[0-9]+\.[0-9]+")  # a fingerprint, or a run
WAITS: Final = "another job copies it; this one waits"


class RoomError(NodeError):
    """The disk has no room for a copy."""


def fetch(request: Request, environ: Mapping[str, str]) -> int:
    """Copy all data of a request to this node. Return 0, or 1 with the error in the log."""
    node = environ.get("SLURMD_NODENAME") or os.uname().nodename
    try:
        own = _own(request.directory)
        run = f"{own}/{request.run}"

        def clean() -> int:
            removed = _remove_old(own, time.time() - request.keep_s, environ) if request.keep_s else 0
            if removed:
                say(f"{node} {KEYWORD}: removed {removed} old copies and links of runs from {own}")
            return removed

        with suppress(FileExistsError):
            os.mkdir(run, 0o700)  # noqa: PTH102
        for to, _, source in (each.partition(":") for each in request.wanted):
            words = own, to, os.path.realpath(source), run, f"{node} {KEYWORD}: {to}: {WAITS}"
            try:
                text = _ensure_copy(*words)
            except RoomError:
                if not clean():
                    raise
                text = _ensure_copy(*words)
            say(f"{node} {KEYWORD}: ok: {to}: {text}")
        _touch(run)
        clean()
    except SourceError as error:
        say(f"{node} {KEYWORD}: failed: {error}")
        return 1
    except (NodeError, OSError) as error:
        why = dataset.words(error) if isinstance(error, OSError) else str(error)
        say(f"{node} {KEYWORD}: failed: {why}; another node may have it")
        with suppress(OSError):
            write_note(request.notes, node, why)
        return 1
    return 0


def _own(directory: str) -> str:
    """Make and return the user's directory. Raise NodeError if it or the site's directory cannot be used."""
    try:
        os.close(node_directory.open_shared(directory))
    except OSError as error:
        raise NodeError(f"{directory}: {error.strerror}; its admin: install -d -m 1777 {directory}") from error
    own = f"{directory}/{os.geteuid()}"
    with suppress(FileExistsError):
        os.mkdir(own, 0o700)  # noqa: PTH102
    found = os.lstat(own)
    if found.st_uid == 0 != os.geteuid():
        raise NodeError(f"{own} is root's; its admin has to remove it")
    if found.st_uid != os.geteuid():
        raise NodeError(f"{own} is not yours: uid {found.st_uid} has made it; the prolog of the next job takes it away")
    if not stat.S_ISDIR(found.st_mode) or found.st_mode & 0o077:
        raise NodeError(f"{own} is no directory that only you can enter; move it away on this node")
    return own


def _remove_old(own: str, before: float, environ: Mapping[str, str]) -> int:
    """Remove copies and links of runs unused since `before` (epoch, in s), unless another job of the user is here.

    Return their number. Leave what this module has not made, as `own` may also be the user's directory below /tmp. What
    fails or takes too long is left to the next job.
    """
    places = (f"{own}/{name}" for name in os.listdir(own) if _OURS.fullmatch(name))  # noqa: PTH208
    old = [place for place in places if _is_old(place, before)]
    if not old or processes.has_other_job(environ.get("SLURM_JOB_ID", "")):
        return 0
    removed, end = 0, time.monotonic() + REMOVE_S
    for place in old:
        if time.monotonic() > end:
            break
        with suppress(OSError), files.Opened(os.open(place, files.DIRECTORY)) as fd:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_old(place, before):  # another process may have used it before the lock
                _remove(place)
                removed += 1
    return removed


def _is_old(place: str, before: float) -> bool:
    """Return whether a directory of this module was last used before this time; also a copy that was never finished."""
    for name in (USED, FRESH):
        with suppress(OSError):
            return os.lstat(f"{place}/{name}").st_mtime < before
    return False


def _ensure_copy(own: str, to: str, source: str, run: str, waits: str) -> str:
    """Make one copy, unless it is there already, and the run's link to it. Return a text for the log."""
    start = time.monotonic()
    entries = dataset.listed(source)
    key = dataset.fingerprint(source, entries)
    place = f"{own}/{key}"
    with _locked(place, lambda: say(waits)) as fd:
        found = _state(place)
        if found != "there already":
            _copy(place, fd, source, entries)
        _touch(place)
        _link(f"../{key}/{DATA}", run, to)
    what = f"{sum(each.kind == 'file' for each in entries)} files, {format_size(sum(each.size for each in entries))}"
    return f"{what}, {found} ({time.monotonic() - start:.1f} s)"


def _state(place: str) -> str:
    """Return `there already` for an undamaged copy, else how the copy will be made, for the log."""
    if not os.path.lexists(f"{place}/{DATA}"):
        return "copied"
    with suppress(OSError, SourceError, NodeError), open(f"{place}/{SEAL}", encoding="ascii") as file:  # noqa: PTH123
        if file.read() == dataset.seal(dataset.listed(f"{place}/{DATA}")):
            return "there already"
    return "copied anew, as the copy here was damaged"


def _copy(place: str, fd: int, source: str, entries: list[dataset.Entry]) -> None:
    """Copy the source, and rename the copy when it is on the disk. If that fails, remove the new copy.

    Remove a damaged copy last, because another job may still read it. If the disk lacks room for both, remove it first.
    """
    fresh, damaged = f"{place}/{FRESH}", f"{place}/{DATA}"
    _remove(fresh)  # left by a job that was ended while it copied
    found = os.fstatvfs(fd)
    if dataset.room(entries, found.f_frsize) > found.f_bavail * found.f_frsize and os.path.lexists(damaged):
        _remove(damaged)
        found = os.fstatvfs(fd)
    needed, free = dataset.room(entries, found.f_frsize), found.f_bavail * found.f_frsize
    if needed > free or (found.f_files and len(entries) > found.f_favail):
        left = f"{format_size(free)} and {found.f_favail} inodes are free"
        raise RoomError(f"{place}: {left}, {source!a} needs {format_size(needed)} and {len(entries)}")
    try:
        dataset.copy(source, entries, fresh)
        files.replace(f"{place}/{SEAL}", dataset.seal(dataset.listed(fresh)), mode=0o600)
        _sync(fd)
    except BaseException:
        _remove(fresh)
        raise
    if os.path.lexists(damaged):
        old = f"{place}/{DATA}.{os.urandom(4).hex()}"
        os.rename(damaged, old)  # noqa: PTH104
        os.rename(fresh, damaged)  # noqa: PTH104
        _remove(old)
        return
    os.rename(fresh, damaged)  # noqa: PTH104


@contextmanager
def _locked(place: str, waits: Callable[[], None]) -> Iterator[int]:
    """Make, open and lock the directory of a copy. Call `waits` if another process has the lock."""
    while True:
        with suppress(FileExistsError):
            os.mkdir(place, 0o700)  # noqa: PTH102
        try:
            fd = os.open(place, files.DIRECTORY)
        except FileNotFoundError:  # another process has removed it
            continue
        with files.Opened(fd):
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waits()
                fcntl.flock(fd, fcntl.LOCK_EX)
            if _is_at(place, fd):
                yield fd
                return


def _is_at(place: str, fd: int) -> bool:
    """Return whether an open directory is still at this path."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.lstat(place), os.fstat(fd))
    return False


def _link(target: str, directory: str, name: str) -> None:
    fresh = f"{directory}/.{name}.{os.getpid()}"
    with suppress(FileNotFoundError):
        os.unlink(fresh)  # noqa: PTH108 - left by a killed process with the same pid
    os.symlink(target, fresh)  # noqa: PTH211
    os.replace(fresh, f"{directory}/{name}")  # noqa: PTH105


def _touch(place: str) -> None:
    """Mark a directory as used now."""
    fd = os.open(f"{place}/{USED}", os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    os.utime(fd)
    os.close(fd)


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114
        os.chmod(path, 0o700)  # noqa: PTH101 - a read-only directory cannot be emptied
        for below, names, _ in os.walk(path):
            for each in (f"{below}/{name}" for name in names if not os.path.islink(f"{below}/{name}")):  # noqa: PTH114
                os.chmod(each, 0o700)  # noqa: PTH101
        shutil.rmtree(path)
    else:
        with suppress(FileNotFoundError):
            os.unlink(path)  # noqa: PTH108


def _sync(fd: int) -> None:
    """Write the file system to the disk (syncfs(2)): fsync of each of a million files takes hours. Raise OSError."""
    if ctypes.CDLL(None, use_errno=True).syncfs(fd):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
