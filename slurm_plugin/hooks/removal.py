"""Delete what one user left in a directory that all users share, /dev/shm for one, as root and safely.

Everything there is made by users, who may change it meanwhile. So no path is followed: each step down opens one name
in an open directory, without following links, and looks at the open file whose it is. What goes is the user's own, on
the same file system, in directories that are the user's own all the way. It is deleted with the user's rights, so that
the kernel refuses what the user could not delete, whoever has put it in the place of what was looked at.

Users nest directories as deep as they like. A way back up by `..` could be led elsewhere, by moving the directory
meanwhile, and a descriptor for each level would run out; so a directory that lies too deep is moved up into the user's
directory where the way began, and emptied from there.
"""

from __future__ import annotations

import os
import stat
from collections import namedtuple
from collections.abc import Callable

from prechecks import mounts

DEEPEST = 32  # directories open at a time, with two descriptors each
LOCAL = mounts.LOCAL | {"bcachefs", "overlay", "ramfs", "tmpfs", "zfs"}  # no other node sees what is in them
_AS_TMP = stat.S_ISVTX | stat.S_IWOTH | stat.S_IXOTH
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Leftovers(namedtuple("Leftovers", "uid device before")):
    """What goes: a user's, on this file system, and not changed since this time of the kernel's clock, in ns."""

    __slots__ = ()
    uid: int
    device: int
    before: int

    def has(self, found: os.stat_result, *, whenever: bool = False) -> bool:
        """Whether this is one of them, `whenever` it was changed."""
        mine = found.st_uid == self.uid and found.st_dev == self.device
        return mine and (whenever or found.st_ctime_ns < self.before)


def open_shared(path: str) -> int:
    """The directory, opened without following a link on the way.

    Raises OSError where that cannot be, PermissionError for one that is not like /tmp (root's, sticky, open to all) and
    for one that other nodes may see: a job there may use what the user has left.
    """
    fd = os.open("/", _DIRECTORY)
    try:
        for part in filter(None, path.split("/")):
            parent, fd = fd, os.open(part, _DIRECTORY, dir_fd=fd)
            os.close(parent)
        found = os.fstat(fd)
        if found.st_uid != 0 or found.st_mode & _AS_TMP != _AS_TMP:
            raise PermissionError(1, "is not root's and open to all with the sticky bit, as /tmp is")
        kind = file_system(path)
        if kind not in LOCAL:
            raise PermissionError(1, f"is on {kind or 'an unknown file system'}, which other nodes may share")
    except BaseException:
        os.close(fd)
        raise
    return fd


def file_system(path: str) -> str:
    """The kind of file system that an absolute path without links is on, empty where the kernel's table has none."""
    whole, longest, kind = "".join(f"{part}/" for part in ["", *filter(None, path.split("/"))]), "", ""
    for mount in mounts.mounts():
        if len(mount.point) >= len(longest) and whole.startswith(mount.point.rstrip("/") + "/"):
            longest, kind = mount.point, mount.kind
    return kind


def any_of(uid: int, directory: int) -> bool:
    """Whether anything that lies in an open directory is this user's."""
    with os.scandir(directory) as entries:
        for entry in entries:
            try:
                if entry.stat(follow_symlinks=False).st_uid == uid:
                    return True
            except FileNotFoundError:
                continue
    return False


def remove(directory: int, leftovers: Leftovers) -> int:
    """Delete them from an open directory; how many there were. One that cannot be deleted stays. For root."""
    removed = 0
    levels = [_Level(os.dup(directory), "")]
    os.seteuid(leftovers.uid)  # no process of the user's may do anything to this one: its real user is root
    try:
        while levels:
            level = levels[-1]
            found = level.next()
            if found is None:
                levels.pop().close()
                removed += _deleted(os.rmdir, level.name, levels[-1].fd) if levels else 0
                continue
            count, below = _look(*found, level.fd, leftovers)
            removed += count
            if below is not None and len(levels) < DEEPEST:
                levels.append(_Level(below, found[0]))
            elif below is not None:
                os.close(below)
                levels[1].take(found[0], level.fd)  # a directory of the user's: levels[0] is everybody's
    finally:
        os.seteuid(0)
        for level in levels:
            level.close()
    return removed


def _look(name: str, moved: bool, directory: int, leftovers: Leftovers) -> tuple[int, int | None]:
    """Delete a file, open a directory: how many are gone, and the directory. What vanishes or changes is left."""
    try:
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if not leftovers.has(found, whenever=moved):
            return 0, None
        if not stat.S_ISDIR(found.st_mode):
            return _deleted(os.unlink, name, directory), None
        below = _open(name, directory, closed=found.st_mode & stat.S_IRWXU != stat.S_IRWXU)
    except OSError:
        return 0, None
    if leftovers.has(os.fstat(below), whenever=True):  # that one, or another of the user's in its place
        return 0, below
    os.close(below)
    return 0, None


def _open(name: str, directory: int, *, closed: bool) -> int:
    """A directory, given its owner's rights where it is `closed` to its owner."""
    if not closed:
        return os.open(name, _DIRECTORY, dir_fd=directory)
    user = os.geteuid()
    os.seteuid(0)
    try:
        fd = os.open(name, _DIRECTORY, dir_fd=directory)
    finally:
        os.seteuid(user)
    try:
        os.fchmod(fd, stat.S_IRWXU)  # refused unless it is the user's
    except OSError:
        os.close(fd)
        raise
    return fd


def _deleted(how: Callable[..., None], name: str, directory: int) -> int:
    """1 where it went; a directory with somebody else's file in it stays, as does what vanished meanwhile."""
    try:
        how(name, dir_fd=directory)
    except OSError:
        return 0
    return 1


class _Level:
    """An open directory on the way down, its name in the one above, and what is still to be looked at in it."""

    def __init__(self, fd: int, name: str) -> None:
        self.fd, self.name = fd, name
        self._entries = os.scandir(fd)
        self._moved: list[str] = []

    def next(self) -> tuple[str, bool] | None:
        """The next name, and whether it was moved here; None at the end."""
        for entry in self._entries:
            return entry.name, False
        return (self._moved.pop(), True) if self._moved else None

    def take(self, name: str, directory: int) -> None:
        """Move a directory here from further down."""
        fresh = f".slurm_plugin.{os.urandom(8).hex()}"
        try:
            os.rename(name, fresh, src_dir_fd=directory, dst_dir_fd=self.fd)
        except OSError:
            return
        self._moved.append(fresh)

    def close(self) -> None:
        """Give both descriptors back."""
        self._entries.close()
        os.close(self.fd)
