"""What is old where the copies of `stage_in:` stand on a node, and removed: for slurm_plugin.hooks.datasets.

For root, in a process that is ended at a deadline. No user's names take all of the time, and each look begins with
another user. A copy that is not all removed is no copy any more. Everybody may make a name in that place; what
somebody has made under another user's is moved out of the way.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice

from slurm_plugin.hooks import cleanup, removal

ENOUGH_S = 1.5  # for a look: what was found by then is the answer
MOST = 1000  # names of one user that one look takes, of ten times as many that it reads
AT_A_TIME = 64  # copies that one pause is enough for; each has two descriptors
DATA, USED = "data", ".used"  # as in slurm_plugin.job.copies
_TICK_S = 0.02  # more than one of the clock that files are stamped by
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def look(directory: str, before: float, here: Collection[int]) -> dict[str, dict[str, list[str]]]:
    """`old`: what users who are not `here` used last before this time, uid -> names, as far as there was time.

    `moved`: what stood under other users' names, uid of who had made it -> names. A place that is not there has
    nothing.
    """
    began = time.monotonic()
    found: dict[str, dict[str, list[str]]] = {"old": {}, "moved": {}}
    try:
        shared = removal.open_shared(directory)
    except OSError:
        return found
    try:
        for name in _from_anywhere(_numbers(shared, began + ENOUGH_S / 2)):
            if time.monotonic() > began + ENOUGH_S:
                break
            uid = int(name)
            owner = _owner(shared, name)
            if owner not in (None, 0, uid) and _moved(shared, name, owner):
                found["moved"].setdefault(str(owner), []).append(name)
            elif owner == uid >= cleanup.FIRST_USER and uid not in here and (old := _old_of(shared, name, before)):
                found["old"][name] = old
    finally:
        os.close(shared)
    return found


def _numbers(shared: int, until: float) -> list[str]:
    """The names that users may have, read until then: there may be millions of others."""
    found = []
    with os.scandir(shared) as entries:
        for entry in entries:
            if entry.name.isascii() and entry.name.isdecimal() and str(int(entry.name)) == entry.name:
                found.append(entry.name)
            if time.monotonic() > until:
                break
    return found


def _from_anywhere(names: Sequence[str]) -> list[str]:
    """The same, from one of them on and round: who is first is not who was first the last time."""
    start = int.from_bytes(os.urandom(4), "little") % max(1, len(names))
    return [*names[start:], *names[:start]]


def _owner(shared: int, name: str) -> int | None:
    try:
        return os.stat(name, dir_fd=shared, follow_symlinks=False).st_uid
    except FileNotFoundError:
        return None


def _moved(shared: int, name: str, owner: int) -> bool:
    """Take a user's name from somebody else's, with the rights of who made that: never from the user's own.

    What has nothing in it goes; the rest is kept under a name of no use, for the admin to look at.
    """
    fresh = f".{name}.{os.urandom(8).hex()}"
    try:
        with _rights_of(owner):
            os.rename(name, fresh, src_dir_fd=shared, dst_dir_fd=shared)
            for how in (os.unlink, os.rmdir):
                with suppress(OSError):
                    how(fresh, dir_fd=shared)
    except OSError:
        return False
    return True


def _old_of(shared: int, uid: str, before: float) -> list[str]:
    try:
        own = _opened(shared, uid, int(uid))
    except OSError:
        return []
    try:
        with os.scandir(own) as entries:
            names = [each.name for each in islice(entries, 10 * MOST)]
        return [name for name in _from_anywhere(names)[:MOST] if _is_old(own, name, int(uid), before)]
    finally:
        os.close(own)


def _is_old(own: int, name: str, uid: int, before: float) -> bool:
    try:
        place = _opened(own, name, uid)
    except OSError:  # a link, say: wherever it leads to may not answer
        return False
    try:
        return _used(place) < before
    finally:
        os.close(place)


def _opened(parent: int, name: str, uid: int) -> int:
    """A directory of this user's. Raises OSError."""
    fd = os.open(name, _DIRECTORY, dir_fd=parent)
    if os.fstat(fd).st_uid != uid:
        os.close(fd)
        raise PermissionError(1, "is not the user's", name)
    return fd


def _used(place: int) -> float:
    """When it was used last; what has no stamp was being made then."""
    try:
        return os.stat(USED, dir_fd=place, follow_symlinks=False).st_mtime
    except OSError:
        return os.fstat(place).st_mtime


@contextmanager
def _rights_of(uid: int) -> Iterator[None]:
    """With the user's: the kernel refuses what the user could not do."""
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)


def remove(directory: str, found: Mapping[str, list[str]], before: float) -> int:
    """How many went."""
    every = [(int(uid), name) for uid, names in found.items() for name in names]
    shared = removal.open_shared(directory)
    try:
        batches = (every[start : start + AT_A_TIME] for start in range(0, len(every), AT_A_TIME))
        return sum(_removed(shared, batch, before) for batch in batches)
    finally:
        os.close(shared)


def _removed(shared: int, batch: Sequence[tuple[int, str]], before: float) -> int:
    """How many of these: each looked at again once nobody else can hold it, and taken its name first."""
    taken = []
    with ExitStack() as stack:
        for uid, name in batch:
            with suppress(OSError):  # somebody has it, or the user has put something else there
                own = _opened(shared, str(uid), uid)
                stack.callback(os.close, own)
                place = _opened(own, name, uid)
                stack.callback(os.close, place)
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
        return sum(_gone(*each, until) for each in taken)


def _gone(uid: int, name: str, own: int, place: int, until: int) -> int:
    """1 where it went with all that was in it before this time of the kernel's clock, in ns."""
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
    """Have the stamp outlast the rest: a removal that is cut off is gone on with, not begun by a new age."""
    with suppress(FileNotFoundError):
        found = os.stat(USED, dir_fd=place, follow_symlinks=False)
        os.utime(USED, ns=(found.st_atime_ns, found.st_mtime_ns), dir_fd=place, follow_symlinks=False)
