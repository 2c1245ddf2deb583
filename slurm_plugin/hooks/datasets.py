"""Copies of `stage_in:` that no job has used for as long as the site keeps them: found and removed, as root.

For the periodic check. slurm_plugin.job.copies says what stands where. A user who has a job or a process on this
node keeps every copy. Looking and removing are processes of their own under a deadline; what is not removed by then
is no copy any more, and goes on the next time.
"""

from __future__ import annotations

import fcntl
import os
import syslog
import time
from collections.abc import Mapping
from contextlib import suppress

from slurm_plugin.hooks import cleanup, node_directory, removal

TYPE_CHECKING = False  # as in prechecks: `typing` costs a hook 3 ms
if TYPE_CHECKING:
    from typing import Any

LOOK_S, REMOVE_S = 2.0, 5.0
DATA, USED = "data", "used"  # as in slurm_plugin.job.copies
_TICK_S = 0.02  # more than one of the clock that files are stamped by
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def clean(site: Mapping[str, Any], *, now: float | None = None) -> None:
    """Remove the copies of users who are not here, oldest use before `now` (seconds of the epoch) less the site's."""
    settings = site.get("stage_in") or {}  # compiled by a version before
    directory = settings.get("directory")
    if not directory:
        return
    before = (time.time() if now is None else now) - settings["keep_s"]
    found = cleanup.in_child(lambda: old(directory, before), LOOK_S)
    if found is None:
        syslog.syslog(syslog.LOG_WARNING, f"no answer within {LOOK_S:g} s from {directory}: no copies removed")
        return
    here = users_here(site["run_directory"]) if found else set()
    gone = {uid: names for uid, names in found.items() if int(uid) not in here and int(uid) >= cleanup.FIRST_USER}
    if gone and cleanup.in_child(lambda: _remove(directory, gone, before), REMOVE_S) is None:
        syslog.syslog(syslog.LOG_WARNING, f"old copies in {directory} are not all removed after {REMOVE_S:g} s")


def users_here(run_directory: str) -> set[int]:
    """Who has a process on this node, or a run that no epilog has ended."""
    found = cleanup.users_of_processes()
    for name in node_directory.all_runs(run_directory):
        try:
            found.add(os.stat(f"{run_directory}/jobs/{name}/user", follow_symlinks=False).st_uid)  # noqa: PTH116
        except FileNotFoundError:
            continue
    return found


def old(directory: str, before: float) -> dict[str, list[str]]:
    """What was used last before this time: uid -> names. A place that is not there has nothing."""
    try:
        shared = removal.open_shared(directory)
    except OSError:
        return {}
    try:
        return {uid: names for uid in _numbers(shared) if (names := _old_of(shared, uid, before))}
    finally:
        os.close(shared)


def _numbers(shared: int) -> list[str]:
    with os.scandir(shared) as entries:
        return [entry.name for entry in entries if entry.name.isdecimal() and entry.name.isascii()]


def _old_of(shared: int, uid: str, before: float) -> list[str]:
    try:
        own = _opened(shared, uid, int(uid))
    except OSError:
        return []
    try:
        with os.scandir(own) as entries:
            return [each.name for each in entries if _used(own, each.name) < before]
    finally:
        os.close(own)


def _opened(parent: int, name: str, uid: int) -> int:
    """A directory of this user's. Raises OSError."""
    fd = os.open(name, _DIRECTORY, dir_fd=parent)
    if os.fstat(fd).st_uid != uid:
        os.close(fd)
        raise PermissionError(1, "is not the user's", name)
    return fd


def _used(own: int, name: str) -> float:
    """When it was used last; what has no stamp was being made then."""
    for path in (f"{name}/{USED}", name):
        try:
            return os.stat(path, dir_fd=own, follow_symlinks=False).st_mtime
        except OSError:
            continue
    return time.time()


def _remove(directory: str, found: Mapping[str, list[str]], before: float) -> int:
    """How many went."""
    removed = 0
    shared = removal.open_shared(directory)
    for uid, names in found.items():
        own = _opened(shared, uid, int(uid))
        for name in names:
            try:
                removed += _removed(own, name, int(uid), before)
            except OSError:  # somebody has it, or the user has put something else there
                continue
        os.close(own)
    os.close(shared)
    if removed:
        syslog.syslog(f"removed {removed} old copies and links of runs from {directory}")
    return removed


def _removed(own: int, name: str, uid: int, before: float) -> int:
    """1 where it went: looked at again once nobody else can hold it, and taken its name first. Raises OSError."""
    place = _opened(own, name, uid)
    try:
        fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _used(own, name) >= before:
            return 0
        os.seteuid(uid)
        try:
            with suppress(FileNotFoundError):
                os.rename(DATA, f"{DATA}.{os.urandom(4).hex()}", src_dir_fd=place, dst_dir_fd=place)
            time.sleep(_TICK_S)
            until = time.clock_gettime_ns(cleanup.STAMPS)
            time.sleep(_TICK_S)
            _keep_stamp(place)
        finally:
            os.seteuid(0)
        removal.remove(place, removal.Leftovers(uid, os.fstat(place).st_dev, until))
        os.seteuid(uid)
        try:
            if any(each != USED for each in os.listdir(place)):  # noqa: PTH208
                return 0
            with suppress(FileNotFoundError):
                os.unlink(USED, dir_fd=place)
            os.rmdir(name, dir_fd=own)
        finally:
            os.seteuid(0)
        return 1
    finally:
        os.close(place)


def _keep_stamp(place: int) -> None:
    """Have the stamp outlast the rest: a removal that is cut off is gone on with, not begun by a new age."""
    try:
        found = os.stat(USED, dir_fd=place, follow_symlinks=False)
        os.utime(USED, ns=(found.st_atime_ns, found.st_mtime_ns), dir_fd=place, follow_symlinks=False)
    except FileNotFoundError:
        return
