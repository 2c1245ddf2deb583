"""Make a user's own directory among the copies of `stage_in:`, in root's prolog, before any step of the user runs.

All users may create files there, as in /tmp, so another user could create a file with this user's name first. Root
makes the directory under another name, gives it to the user, and renames it atomically.
"""

from __future__ import annotations

import errno
import os
import stat

from prechecks import files
from slurm_plugin.node import child_work
from slurm_plugin.records import node_directory, syslog

WITHIN_S = 2.0  # longest time to make the directory; the checks report a disk that does not answer
_TRIES = 20
_EXCHANGE = 2  # RENAME_EXCHANGE of renameat2(2)


def make(directory: str, uid: int, gid: int, state: str = "") -> None:
    """Make the user's directory in a child process, within WITHIN_S, if it is missing or another user owns it.

    Only log a warning while an earlier child hangs there. `state`: the directory with the record of stuck processes.
    """
    refused, error = child_work.run(
        state, f"place {directory}", lambda: _make(directory, uid, gid), WITHIN_S, directory
    )
    if why := refused or error:
        syslog.syslog(syslog.LOG_WARNING, f"no place for copies of uid {uid} in {directory}: {why}")


def _make(directory: str, uid: int, gid: int) -> str:
    """Make the directory. Return an error message; empty if the user now has a directory."""
    name = str(uid)
    with files.Opened(node_directory.open_shared(directory)) as shared:
        if _owner(shared, name) in (uid, 0):
            return ""
        fresh = f".{name}.{os.urandom(8).hex()}"
        os.mkdir(fresh, 0o700, dir_fd=shared)  # root owns it, so no user can take its name
        try:
            os.chown(fresh, uid, gid, dir_fd=shared, follow_symlinks=False)
            return "" if any(_move_in(shared, fresh, name, uid) for _ in range(_TRIES)) else f"{name} is another user's"
        finally:
            _tidy(shared, fresh, uid)


def _owner(shared: int, name: str) -> int | None:
    """Return the owner of a directory, 0 for any file of root; None if the name is missing or a user's file."""
    try:
        found = os.stat(name, dir_fd=shared, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return found.st_uid if stat.S_ISDIR(found.st_mode) or not found.st_uid else None


def _move_in(shared: int, fresh: str, name: str, uid: int) -> bool:
    """Rename `fresh` to `name`. Return whether `name` is a directory of the user now."""
    try:
        os.rename(fresh, name, src_dir_fd=shared, dst_dir_fd=shared)  # this replaces an empty directory of any user
        return True
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise
    if _owner(shared, name) == uid:  # the user has made the directory meanwhile
        return True
    _exchange(shared, fresh, name)
    if _owner(shared, fresh) == uid and _owner(shared, name) == uid:
        _exchange(shared, fresh, name)  # the user made it just before the exchange: it may contain copies
    return _owner(shared, name) == uid


def _exchange(shared: int, one: str, other: str) -> None:
    """Exchange two names of any kind of file. Ignore errors, such as a missing name."""
    import ctypes  # noqa: PLC0415 - 10 ms, only where another user has taken the name

    ctypes.CDLL(None).renameat2(shared, one.encode(), shared, other.encode(), _EXCHANGE)


def _tidy(shared: int, fresh: str, uid: int) -> None:
    """Remove the entry `fresh` if it is empty. Otherwise keep it, and log its name for an administrator."""
    try:
        found = os.stat(fresh, dir_fd=shared, follow_symlinks=False)
        how = os.rmdir if stat.S_ISDIR(found.st_mode) else os.unlink
        if how is os.unlink and stat.S_ISREG(found.st_mode) and found.st_size:
            raise FileExistsError(errno.EEXIST, "has something in it", fresh)
        how(fresh, dir_fd=shared)
    except FileNotFoundError:
        return
    except OSError:
        text = f"another user had made the directory of uid {uid} for copies; renamed to {fresh}"
        syslog.syslog(syslog.LOG_WARNING, text)
