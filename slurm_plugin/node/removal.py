"""Delete, as root, the files that one user left in a directory that all users share, such as /dev/shm.

Users own the content, and may change it during the removal. So root follows no path: each step opens one name in an
open directory, without following links, and checks the owner of the open file. Only files of the user on the same file
system are deleted, below directories that all belong to the user. Deletions have the user's rights: if another file
has replaced the checked one, the kernel deletes it only if the user could.

Users can nest directories to any depth. One open descriptor per level would exceed the limit, and `..` is not safe,
because the user can move a directory. So a directory that is too deep is moved up into the user's topmost directory,
and emptied there.

`find -delete` is not suitable. If it ran as the user, the user's processes could kill it. It cannot enter directories
that are closed to their owner. It calls stat on mount points, where a user's FUSE file system may never answer.
"""

from __future__ import annotations

import os
import stat
from collections import namedtuple
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import suppress

from prechecks import files
from prechecks.checks import mounts

DEEPEST = 32  # most directories that are open at the same time, with two descriptors each


class Leftovers(namedtuple("Leftovers", "uid device before in_use bound", defaults=(frozenset(), frozenset()))):
    """The files to delete: of this user, on this device, last changed before `before` (cleanup.STAMPS, in ns).

    Files and directories `in_use` stay, by device and inode, and also the sockets at the paths `bound`.
    """

    __slots__ = ()
    uid: int
    device: int
    before: int
    in_use: Collection[tuple[int, int]]
    bound: Collection[str]

    def has(self, found: os.stat_result, *, whenever: bool = False) -> bool:
        """Return whether to delete a file with this status. `whenever`: ignore the time of its last change."""
        mine = found.st_uid == self.uid and found.st_dev == self.device
        old = whenever or found.st_ctime_ns < self.before
        return mine and old and (found.st_dev, found.st_ino) not in self.in_use

    def keeps_socket(self, found: os.stat_result, name: str, directory: int) -> bool:
        """Return whether a process may accept connections at this name."""
        return bool(self.bound) and stat.S_ISSOCK(found.st_mode) and f"{_path(directory)}/{name}" in self.bound


def entries(directory: int) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the names in an open directory with their status. Skip a name if stat fails."""
    for entry in scan(directory):
        found = None
        with suppress(OSError):
            found = os.stat(entry.name, dir_fd=directory, follow_symlinks=False)
        if found:
            yield entry.name, found


def scan(directory: int, mounted: Collection[str] | None = None) -> Generator[os.DirEntry[str]]:
    """Yield the entries of an open directory, until a read fails.

    Skip mount points: a user's FUSE mount may refuse root or never answer. `mounted`: the result of `mounted_below`, if
    it is known.
    """
    mounted = mounted_below(directory) if mounted is None else mounted
    with suppress(OSError), os.scandir(directory) as found:
        for entry in found:
            if not mounted or f"{_path(directory)}/{entry.name}" not in mounted:
                yield entry


def mounted_below(directory: int) -> frozenset[str]:
    """Return the mount points below an open directory, at any depth."""
    above = f"{_path(directory)}/"
    return frozenset(mount.point for mount in mounts.mounts() if mount.point.startswith(above))


def _path(directory: int) -> str:
    """Return the current path of an open directory; empty if the path is too long."""
    try:
        return os.readlink(f"/proc/self/fd/{directory}")  # noqa: PTH115 - pathlib costs a hook 5 ms
    except OSError:
        return ""


def remove(directory: int, leftovers: Leftovers, only: Callable[[str], bool] = lambda _: True) -> int:
    """Delete the leftovers in an open directory, as root or as their user. Return the number deleted.

    `only`: of the names in the directory itself, those for which this is true.
    """
    removed, mounted, user = 0, mounted_below(directory), os.geteuid()
    levels = [_Level(os.dup(directory), "", mounted)]
    os.seteuid(leftovers.uid)  # the real user stays root, so the user's processes cannot signal this process
    try:
        while levels:
            level = levels[-1]
            found = level.next()
            if len(levels) == 1 and found and not only(found[0]):
                continue
            if found is None:
                levels.pop().close()
                removed += _delete(os.rmdir, level.name, levels[-1].fd) if levels else 0
                continue
            count, below = _delete_or_open(*found, level.fd, leftovers)
            removed += count
            if below is not None and len(levels) < DEEPEST:
                levels.append(_Level(below, found[0], mounted))
            elif below is not None:
                os.close(below)
                levels[1].take(found[0], level.fd)  # levels[1] is the user's topmost directory, levels[0] is shared
    finally:
        os.seteuid(user)
        for level in levels:
            level.close()
    return removed


def _delete_or_open(name: str, moved: bool, directory: int, leftovers: Leftovers) -> tuple[int, int | None]:
    """Delete a file or open a directory. Return the number deleted, and the descriptor. Skip a changed file."""
    try:
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if not leftovers.has(found, whenever=moved) or leftovers.keeps_socket(found, name, directory):
            return 0, None
        if not stat.S_ISDIR(found.st_mode):
            return _delete(os.unlink, name, directory), None
        below = _open(name, directory, closed=found.st_mode & stat.S_IRWXU != stat.S_IRWXU)
    except OSError:
        return 0, None
    with suppress(OSError):
        if leftovers.has(os.fstat(below), whenever=True):  # the open directory is the user's, too
            return 0, below
    os.close(below)
    return 0, None


def _open(name: str, directory: int, *, closed: bool) -> int:
    """Open a directory. If it is `closed` to its owner, first give the owner all rights."""
    if not closed:
        return os.open(name, files.DIRECTORY, dir_fd=directory)
    user = os.geteuid()
    os.seteuid(0)
    try:
        fd = os.open(name, files.DIRECTORY, dir_fd=directory)
    finally:
        os.seteuid(user)
    try:
        os.fchmod(fd, stat.S_IRWXU)  # the kernel refuses this unless the user owns it
    except OSError:
        os.close(fd)
        raise
    return fd


def _delete(how: Callable[..., None], name: str, directory: int) -> int:
    """Delete a name with `how`. Return 1; 0 if that fails, as for a directory with another user's file in it."""
    try:
        how(name, dir_fd=directory)
    except OSError:
        return 0
    return 1


class _Level:
    """An open directory, its name in its parent, and its names that are not handled yet."""

    def __init__(self, fd: int, name: str, mounted: Collection[str]) -> None:
        self.fd, self.name = fd, name
        self._entries = scan(fd, mounted)
        self._moved: list[str] = []

    def next(self) -> tuple[str, bool] | None:
        """Return the next name, and whether `take` moved it here; None at the end."""
        for entry in self._entries:
            return entry.name, False
        return (self._moved.pop(), True) if self._moved else None

    def take(self, name: str, directory: int) -> None:
        """Move a directory from a deeper level into this one."""
        fresh = f".slurm_plugin.{os.urandom(8).hex()}"
        try:
            os.rename(name, fresh, src_dir_fd=directory, dst_dir_fd=self.fd)
        except OSError:
            return
        self._moved.append(fresh)

    def close(self) -> None:
        """Close both descriptors."""
        self._entries.close()
        os.close(self.fd)
