"""Remove, as root, copies of `stage_in:` that no job has used for the time `stage_in.keep`.

The periodic check and slurm_plugin.node.disk_room use this module. The directories are described in
slurm_plugin.supervisor.staging.data_copies. Users with a job or a process on this node keep their copies. A child
process finds and removes copies under a deadline. It does not start while an earlier one hangs.

Each search begins with a random user and takes a limited number of copies per user, so that one user cannot use up the
time. Jobs do not find a partly removed copy, and the next check removes the rest. All users may create names in the
shared directory. This module skips a directory if its name is not its owner (slurm_plugin.node.staging_directory).
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice

from prechecks import files
from slurm_plugin.node import child_work, cleanup, removal
from slurm_plugin.records import node_directory, syslog
from slurm_plugin.records.node_directory import DATA, USED

TYPE_CHECKING = False  # as in prechecks: `typing` costs a hook 3 ms
if TYPE_CHECKING:
    from typing import Any

REMOVE_S = 7.0
ENOUGH_S = 1.5  # a search ends after this time, with the copies found so far
MOST = 1000  # most copies of a user that one search checks; it reads up to ten times as many names
AT_A_TIME = 64  # copies that are removed together, after one pause; each needs two descriptors
_TICK_S = 0.02  # longer than a tick of the clock of file times (cleanup.STAMPS)


def clean(site: Mapping[str, Any], *, now: float | None = None) -> None:
    """Remove copies of absent users that were last used before `now` (epoch, in s) minus `stage_in.keep`."""
    directory = site["stage_in"]["directory"]
    if not directory:
        return
    before = (time.time() if now is None else now) - site["stage_in"]["keep_s"]
    here = users_here(site["run_directory"])
    removed, why = child_work.run(
        site["prechecks"]["state"], f"datasets {directory}", lambda: remove_old(directory, before, here), REMOVE_S
    )
    if why:
        syslog.syslog(syslog.LOG_WARNING, f"remove old copies in {directory}: {why}")
    elif removed:
        syslog.syslog(f"removed {removed} old copies and links of runs from {directory}")


def users_here(run_directory: str) -> set[int]:
    """Return the user ids with a process on this node, or with a run whose epilog has not run yet."""
    found = cleanup.users_of_processes()
    owners = {node_directory.owner(run_directory, name) for name in node_directory.all_runs(run_directory)}
    return found | {owner for owner in owners if owner is not None}


def remove_old(directory: str, before: float, here: Collection[int]) -> int:
    """Remove copies last used before `before`, except those of the users `here`. Return the number removed."""
    try:
        shared = node_directory.open_shared(directory)
    except OSError:
        return 0
    with files.Opened(shared):
        old = find_old(shared, before, here)
        batches = (old[start : start + AT_A_TIME] for start in range(0, len(old), AT_A_TIME))
        return sum(_remove_batch(shared, batch, before) for batch in batches)


def find_old(shared: int, before: float, here: Collection[int]) -> list[tuple[int, str]]:
    """Return the users and names of the copies to remove that were found within ENOUGH_S."""
    began = time.monotonic()
    old: list[tuple[int, str]] = []
    for name in _rotated(_numbers(shared, began + ENOUGH_S / 2)):
        if time.monotonic() > began + ENOUGH_S:
            break
        if cleanup.FIRST_USER <= int(name) not in here:
            old += _old_of(shared, int(name), before)
    return old


def _numbers(shared: int, until: float) -> list[str]:
    """Return the names that are user ids. Stop reading at `until`: there may be millions of other names."""
    found = []
    for entry in removal.scan(shared):
        name = entry.name
        if name.isascii() and name.isdecimal() and str(int(name)) == name:
            found.append(name)
        if time.monotonic() > until:
            break
    return found


def _rotated(names: Sequence[str]) -> list[str]:
    """Return the names, rotated by a random number: each search begins with another name."""
    start = int.from_bytes(os.urandom(4), "little") % max(1, len(names))
    return [*names[start:], *names[:start]]


def _old_of(shared: int, uid: int, before: float) -> list[tuple[int, str]]:
    try:
        own = _opened(shared, str(uid), uid)
    except OSError:
        return []
    with files.Opened(own):
        names = [entry.name for entry in islice(removal.scan(own), 10 * MOST)]
        return [(uid, name) for name in _rotated(names)[:MOST] if _is_old(own, name, uid, before)]


def _is_old(own: int, name: str, uid: int, before: float) -> bool:
    try:
        with files.Opened(_opened(own, name, uid)) as place:
            return _used(place) < before
    except OSError:  # for example a link, whose target may never answer
        return False


def _opened(parent: int, name: str, uid: int) -> int:
    """Open a directory that this user owns. Raises OSError."""
    fd = os.open(name, files.DIRECTORY, dir_fd=parent)
    try:
        if os.fstat(fd).st_uid != uid:
            raise PermissionError(1, "is not the user's", name)
    except OSError:
        os.close(fd)
        raise
    return fd


def _used(place: int) -> float:
    """Return the time of the last use of a copy; without a stamp, the time when it was made."""
    try:
        return os.stat(USED, dir_fd=place, follow_symlinks=False).st_mtime
    except OSError:
        return os.fstat(place).st_mtime


@contextmanager
def _rights_of(uid: int) -> Iterator[None]:
    """Act with the user's rights, so that the kernel refuses other actions."""
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)


def _remove_batch(shared: int, batch: Sequence[tuple[int, str]], before: float) -> int:
    """Remove these copies. First lock each, check its age again, and rename its data so that no job finds it."""
    taken = []
    with ExitStack() as stack:
        for uid, name in batch:
            with suppress(OSError):  # a job has locked it, or the user has replaced it
                own = stack.enter_context(files.Opened(_opened(shared, str(uid), uid)))
                place = stack.enter_context(files.Opened(_opened(own, name, uid)))
                fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _used(place) >= before:
                    continue
                with _rights_of(uid), suppress(FileNotFoundError):
                    os.rename(DATA, f"{DATA}.{os.urandom(4).hex()}", src_dir_fd=place, dst_dir_fd=place)
                taken.append((uid, name, own, place))
        if not taken:
            return 0
        time.sleep(_TICK_S)
        until = time.clock_gettime_ns(cleanup.STAMPS)
        time.sleep(_TICK_S)
        return sum(_remove_copy(*each, until) for each in taken)


def _remove_copy(uid: int, name: str, own: int, place: int, until: int) -> int:
    """Remove a copy's files older than `until` (cleanup.STAMPS, ns), then the copy. Return 1 if it is gone, else 0."""
    with suppress(OSError):
        with _rights_of(uid):
            _keep_stamp(place)
        removal.remove(place, removal.Leftovers(uid, os.fstat(place).st_dev, until))
        with _rights_of(uid):
            if any(each != USED for each in os.listdir(place)):
                return 0
            with suppress(FileNotFoundError):
                os.unlink(USED, dir_fd=place)
            os.rmdir(name, dir_fd=own)
        return 1
    return 0


def _keep_stamp(place: int) -> None:
    """Renew the stamp's ctime, so that `removal.remove` keeps it: after an interruption the copy is still old."""
    with suppress(FileNotFoundError):
        found = os.stat(USED, dir_fd=place, follow_symlinks=False)
        os.utime(USED, ns=(found.st_atime_ns, found.st_mtime_ns), dir_fd=place, follow_symlinks=False)
