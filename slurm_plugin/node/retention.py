"""Remove the records and logs of jobs that ended long ago: for `slurm-plugin clean`.

A user's directories may change at any moment, and root may clean them. So each directory is opened in an open one,
without following links, mount points are skipped, and every file is read and removed with the rights of its owner. A
job's directory must belong to the owner of its files. Of it only files with slurm_plugin's names are removed, and only
those that are older than the question to Slurm: a job that starts after the answer keeps its files.
"""

import os
import pwd
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from errno import ETIMEDOUT
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from prechecks import files
from prechecks.checks import mounts
from prechecks.child import Child
from slurm_plugin.errors import printable
from slurm_plugin.node import cleanup, removal
from slurm_plugin.records import job_directory, log_files
from slurm_plugin.slurm import ENDED, Job, Slurm, SlurmError

KEEP_S: Final = 30 * 86400  # of settings that an earlier version has compiled
SEARCH_S: Final = 240.0  # a search ends after this time, with the jobs found so far
ANSWER_S: Final = 10.0  # the jobs whose logs are in a directory that does not answer are kept
DEEPEST: Final = 32  # levels of directories that are searched
NOW_NS: Final = 10**9  # a file that the caller has just written is older than this
BLOCK_BYTES: Final = 512  # of st_blocks (stat(2))
_NOBODY: Final = 65534


class Old(NamedTuple):
    """The directory of a job, all of whose files are old."""

    place: tuple[str, ...]  # the names of the directories down to it
    job_id: int
    uid: int
    size: int  # bytes of its files and logs


class Found(NamedTuple):
    """The result of a search."""

    old: Sequence[Old]
    foreign: Sequence[tuple[str, ...]]  # directories of another cluster's jobs
    complete: bool  # whether all was searched


def clean(
    directory: str,
    older_s: float,
    door: Slurm,
    cluster: str,
    *,
    owner: int | None,
    remove: bool,
    now: float,
    below: bool = True,
) -> dict[str, Any]:
    """Remove the old directories and logs of ended jobs in a directory. Return what was found, for JSON.

    `owner`: only this user's; None, as root: everybody's but those of system accounts. `remove`: else only look.
    `below`: also of jobs in all directories below. Raises OSError if the directory cannot be opened.
    """
    flags = files.DIRECTORY if owner is None else files.DIRECTORY & ~os.O_NOFOLLOW
    with files.Opened(os.open(directory, flags)) as top:
        whose = os.fstat(top).st_uid  # root may not look into a user's directory on a file server
        searcher = whose if owner is None and whose >= cleanup.FIRST_USER else os.geteuid()
        with _rights_of(searcher):
            found = _search(top, now - older_s, cluster, owner, below=below)
        before = time.clock_gettime_ns(cleanup.STAMPS)
        try:
            jobs = door.jobs([each.job_id for each in found.old])
        except SlurmError as error:
            return {"away": str(error)}
        over = [each for each in found.old if is_over(jobs.get(each.job_id), now - older_s)]
        with _rights_of(searcher):
            done = [(each, _remove(top, each, before) if remove else each.size) for each in over]
        return {
            "jobs": [_form(each, freed, directory) for each, freed in done if freed is not None],
            "kept": [_path(directory, each.place) for each in found.old if each not in over],
            "foreign": [_path(directory, each) for each in found.foreign],
            "complete": found.complete,
        }


def remove_job(workdir: Path, job_id: int, cluster: str) -> int | None:
    """Remove this user's records and logs of one ended job, old or not. Return the freed bytes; None if there are none.

    Raise OSError if the directory cannot be opened.
    """
    with files.Opened(os.open(workdir, files.DIRECTORY & ~os.O_NOFOLLOW)) as top:
        before = time.clock_gettime_ns(cleanup.STAMPS) + NOW_NS
        found = _look(top, (job_directory.OURS, str(job_id)), float("inf"), cluster, os.geteuid())
        return _remove(top, found, before) if isinstance(found, Old) else None


def is_over(job: Job | None, before: float) -> bool:
    """Return whether a job has ended before this time (seconds of the epoch), or Slurm has forgotten it."""
    if job is None:
        return True
    return job.state in ENDED and job.end_time is not None and bool(job.end_time.timestamp() < before)


def _form(old: Old, freed: int, directory: str) -> dict[str, Any]:
    return {"job": old.job_id, "uid": old.uid, "directory": _path(directory, old.place), "bytes": freed}


def _path(directory: str, place: Sequence[str]) -> str:
    return printable("/".join((directory.rstrip("/"), *place)))


def _search(top: int, before: float, cluster: str, owner: int | None, *, below: bool) -> Found:
    """Find the directories of jobs whose files were last changed before this time (seconds of the epoch)."""
    until = time.monotonic() + SEARCH_S
    device, mounted = os.fstat(top).st_dev, removal.mounted_below(top)
    old: list[Old] = []
    foreign: list[tuple[str, ...]] = []
    waiting: list[tuple[str, ...]] = [()]
    while waiting and time.monotonic() < until:
        place = waiting.pop()
        with suppress(OSError), _opened(top, place) as fd:
            if os.fstat(fd).st_dev != device:
                continue
            in_ours = bool(place) and place[-1] == job_directory.OURS
            for entry in removal.scan(fd, mounted):
                if in_ours and job_directory.is_job(entry.name):
                    found = _look(top, (*place, entry.name), before, cluster, owner)
                    old += [found] if isinstance(found, Old) else []
                    foreign += [(*place, entry.name)] if found is False else []
                elif not in_ours and (below or entry.name == job_directory.OURS) and _leads_on(entry, place):
                    waiting.append((*place, entry.name))
    return Found(old, foreign, not waiting)


def _leads_on(entry: "os.DirEntry[str]", place: Sequence[str]) -> bool:
    """Return whether to search a directory. Skip hidden ones, such as those of conda and git."""
    wanted = entry.name == job_directory.OURS or not entry.name.startswith(".")
    return wanted and len(place) < DEEPEST and entry.is_dir(follow_symlinks=False)


def _look(top: int, place: tuple[str, ...], before: float, cluster: str, owner: int | None) -> Old | bool:
    """Return a job's directory if it is old; False if it is another cluster's job's, True if it is kept."""
    with suppress(OSError), _opened(top, place) as fd:
        uid = os.fstat(fd).st_uid
        if uid != owner and (owner is not None or uid < cleanup.FIRST_USER):
            return True
        with _rights_of(uid):
            here, job_id = Path(f"/proc/self/fd/{fd}"), int(place[-1])
            named = [each.get("cluster") for each in job_directory.attempts(here) or ()]
            turn = (job_directory.read(here / job_directory.TURN, uid) or "").split()[2:]
            if any(job_directory.theirs(name, cluster) for name in (*named, *turn)):
                return False
            size, changed = _measure(fd, uid)
            for path in _logs(here, job_id, uid):
                found = path.lstat()
                size, changed = size + _bytes(found), max(changed, found.st_mtime)
            return True if changed >= before else Old(place, job_id, uid, size)
    return True


def _measure(fd: int, uid: int, depth: int = 0) -> tuple[int, float]:
    """Return the bytes of slurm_plugin's files in a job's directory, and the time of the last change in it."""
    size, changed = 0, os.fstat(fd).st_mtime
    for name, found in removal.entries(fd):
        changed = max(changed, found.st_mtime)
        if found.st_uid != uid or not (depth or job_directory.is_ours(name)):
            continue
        size += _bytes(found)
        if depth < DEEPEST and stat.S_ISDIR(found.st_mode):
            with suppress(OSError), _opened(fd, (name,)) as below:
                more, latest = _measure(below, uid, depth + 1)
                size, changed = size + more, max(changed, latest)
    return size, changed


def _bytes(found: os.stat_result) -> int:
    """Return the room that the removal of a name gives: none if the file has another name."""
    return found.st_blocks * BLOCK_BYTES if found.st_nlink == 1 and stat.S_ISREG(found.st_mode) else 0


def _logs(here: Path, job_id: int, uid: int) -> list[Path]:
    """Return the logs of the nodes and ranks of a job, as its record says where they are.

    Raise TimeoutError if their directory does not answer: it may be anywhere, also on a mount that hangs.
    """
    output = log_files.output(here)
    if output is None or not output.directory.startswith("/"):
        return []
    if not _answers(output.directory):
        raise TimeoutError(ETIMEDOUT, os.strerror(ETIMEDOUT), output.directory)
    begins = log_files.stem(output.name, job_id, 0)
    return [
        each.path
        for each in log_files.find(Path(output.directory), job_id, owner=uid)
        if each.path.name.startswith(f"{begins}-")
    ]


@cache
def _answers(directory: str) -> bool:
    """Return whether a directory answers within ANSWER_S, asked once, in a child process; also if it is missing."""
    child = Child(lambda _: mounts.ask(directory).encode())
    return child.collect(child.start + ANSWER_S)


def _remove(top: int, old: Old, before: int) -> int | None:
    """Remove a job's logs and records that are older than `before` (cleanup.STAMPS, in ns).

    Return the freed bytes; None if nothing could be removed.
    """
    removed = freed = 0
    with suppress(OSError), _opened(top, old.place[:-1]) as parent, _opened(parent, old.place[-1:]) as fd:
        found = os.fstat(fd)
        if found.st_uid != old.uid:
            return None
        with _rights_of(old.uid):
            for path in _logs(Path(f"/proc/self/fd/{fd}"), old.job_id, old.uid):
                with suppress(OSError):
                    status = path.lstat()
                    if status.st_ctime_ns < before:
                        path.unlink()
                        removed, freed = removed + 1, freed + _bytes(status)
            size, _ = _measure(fd, old.uid)
            removed += removal.remove(fd, removal.Leftovers(old.uid, found.st_dev, before), only=job_directory.is_ours)
            left, _ = _measure(fd, old.uid)
            freed += size - left
            with suppress(OSError):  # it has files that are not slurm_plugin's
                os.rmdir(old.place[-1], dir_fd=parent)
                removed += 1
    return freed if removed else None


@contextmanager
def _opened(top: int, place: Sequence[str]) -> Iterator[int]:
    """Open a directory below an open one, without following links. Raises OSError."""
    fd = os.dup(top)
    try:
        for name in place:
            above, fd = fd, os.open(name, files.DIRECTORY, dir_fd=fd)
            os.close(above)
        yield fd
    finally:
        os.close(fd)


@contextmanager
def _rights_of(uid: int) -> Iterator[None]:
    """As root, act with the rights of a user and of the user's groups, so that the kernel refuses other actions."""
    user, group, groups = os.geteuid(), os.getegid(), os.getgroups()
    if uid == user:
        yield
        return
    try:
        entry = pwd.getpwuid(uid)
        own, others = entry.pw_gid, os.getgrouplist(entry.pw_name, entry.pw_gid)
    except KeyError:
        own, others = _NOBODY, []
    os.seteuid(0)
    os.setgroups(others)
    os.setegid(own)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)
        os.setgroups(groups)
        os.seteuid(user)
