"""Open directories that root owns, find who can change a file, and replace files atomically.

Each prolog imports this, so it imports little.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from errno import EINVAL

TYPE_CHECKING = False  # as in `typing`, which is too slow to import here (see prechecks.verdict)
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LOCK = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_FRESH = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def open_directory(top: str, below: Sequence[tuple[str, int]] = (), *, make: bool = False) -> int:
    """Open `top`, then each directory of `below` in the one before it, without following links. Return the last.

    `below`: names and modes. `make`: create missing directories. Raise PermissionError if one of them has an owner
    other than root or this user, OSError if one is missing or a link.
    """
    if make and not os.path.isdir(top):  # noqa: PTH112 - pathlib costs a hook 5 ms
        os.makedirs(top, exist_ok=True)  # noqa: PTH103
        os.chmod(top, 0o755)  # noqa: PTH101, S103 - despite the umask: tasks open files below it
    fd, path = os.open(top, DIRECTORY), top
    try:
        _refuse_others(fd, path)
        for name, mode in below:
            if make:
                make_directory(fd, name, mode)
            above, fd = fd, os.open(name, DIRECTORY, dir_fd=fd)
            os.close(above)
            path = f"{path}/{name}"
            _refuse_others(fd, path)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _refuse_others(fd: int, path: str) -> None:
    if os.fstat(fd).st_uid not in (0, os.geteuid()):
        raise PermissionError(f"{path}: not owned by root; remove it")


def exposed(*files: str) -> str:
    """Return the first of these absolute paths and of their parents that a user other than root can change; or empty.

    For a link, check the parents of the link and of its target. A sticky directory passes: users cannot remove root's
    files there. Raises OSError if a path does not exist.
    """
    places = dict.fromkeys(place for file in files for path in (os.path.realpath(file), file) for place in _up(path))
    for place in places:
        found = os.stat(place)  # noqa: PTH116 - pathlib costs a hook 5 ms
        others = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        sticky = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX
        if found.st_uid != 0 or (others and not sticky):
            return place
    return ""


def _up(path: str) -> Iterator[str]:
    """Yield /a/b, /a and / for the path /a/b."""
    yield path
    while path not in ("/", ""):
        path = path.rpartition("/")[0] or "/"
        yield path


def make_directory(parent: int, name: str, mode: int) -> None:
    """Create a directory with this mode, regardless of the umask. Do not change an existing directory."""
    try:
        os.mkdir(name, mode, dir_fd=parent)
    except FileExistsError:
        return
    with Opened(os.open(name, DIRECTORY, dir_fd=parent)) as fd:
        os.fchmod(fd, mode)


def lock(directory: int, name: str, wait_s: float) -> int:
    """Lock the file `name` in an open directory, and return its descriptor; closing it releases the lock.

    Create the file for this user alone: other users could lock a directory or a file that they may read. Raise
    BlockingIOError if another process holds the lock for `wait_s`, OSError if the file cannot be opened.
    """
    fd, end = os.open(name, _LOCK, 0o600, dir_fd=directory), time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                os.close(fd)
                raise
            time.sleep(0.02)
        else:
            return fd


class Opened:
    """Close an open file or directory at the end of a `with` block."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def __enter__(self) -> int:
        return self._fd

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


class Locked:
    """Hold the lock `name` of an open directory during a `with` block, then close both. Raise as `lock` does."""

    def __init__(self, directory: int, name: str, wait_s: float) -> None:
        self._directory = directory
        try:
            self._lock = lock(directory, name, wait_s)
        except BaseException:
            os.close(directory)
            raise

    def __enter__(self) -> int:
        return self._directory

    def __exit__(self, *_: object) -> None:
        os.close(self._lock)
        os.close(self._directory)


def replace(
    path: str | os.PathLike[str],
    content: str | bytes,
    *,
    mode: int | None = 0o644,
    uid: int = -1,
    gid: int = -1,
    directory: int | None = None,
    durable: bool = False,
) -> None:
    """Replace a file atomically: readers see the old file or the new one. Of several writers, the last one wins.

    `path` is relative to the descriptor `directory`, if that is given. `mode` does not depend on the umask; None: 0o666
    without the bits of the umask. `durable`: the file survives a crash of this machine. Raise OSError if it fails;
    then no temporary file remains.
    """
    folder, slash, name = os.fspath(path).rpartition("/")
    fresh = f"{folder}{slash}.{name}.{os.getpid()}"
    _unlink(fresh, directory)  # left by a killed process that had the same pid
    try:
        with open(os.open(fresh, _FRESH, 0o666 if mode is None else mode, dir_fd=directory), "wb") as file:  # noqa: PTH123
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            if (uid, gid) != (-1, -1):
                os.fchown(file.fileno(), uid, gid)
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            if durable:
                os.fsync(file.fileno())
        os.rename(fresh, path, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        _unlink(fresh, directory)
        raise
    if durable:
        _sync_directory(folder or ".", directory)


def _sync_directory(path: str, directory: int | None) -> None:
    with Opened(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)) as fd:
        try:
            os.fsync(fd)
        except OSError as error:
            if error.errno != EINVAL:  # EINVAL: the file system cannot sync directories
                raise


def append(path: str | os.PathLike[str], text: str, *, durable: bool = False) -> None:
    """Append lines to a file of the process's user, not through a link. Raise OSError.

    If a full disk or a killed process has cut off the last line, end that line first: the new ones stay readable.
    """
    with Opened(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)) as fd:
        size = os.fstat(fd).st_size
        cut_off = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
        rest = b"\n" * cut_off + text.encode()
        while rest:  # once, except on a disk that is full
            rest = rest[os.write(fd, rest) :]
        if durable:
            os.fsync(fd)


def _unlink(path: str, directory: int | None) -> None:
    try:  # noqa: SIM105 - `contextlib` costs a prolog 4 ms
        os.unlink(path, dir_fd=directory)
    except FileNotFoundError:
        pass
