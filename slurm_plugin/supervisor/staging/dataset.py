"""A source of data: its entries, its fingerprint, and a copy of it. For `slurm_plugin.supervisor.staging.data_copies`.

A copy and its directories are read-only for its user. Links are copied as links; one that leads out of the source
gets an absolute target. A failure at the source is a SourceError, or a NodeError if its file server does not answer. A
failure at the copy is an OSError.
"""

import os
import stat
import threading
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from hashlib import sha256
from typing import Final, NamedTuple

from prechecks.files import Opened
from slurm_plugin.supervisor.progress import AWAY

AT_A_TIME: Final = 8  # files at a time: a file server answers many requests as fast as one
_PIECE: Final = 1 << 22


class SourceError(Exception):
    """The source is missing, cannot be read or is being changed: the job's own fault."""


class NodeError(Exception):
    """This node cannot have the data; another node may."""


class Entry(NamedTuple):
    """One entry of a source. `path` is relative to the source, and empty for the source itself."""

    path: str
    kind: str  # directory, file, link
    size: int
    mtime_ns: int
    mode: int
    target: str  # of a link
    ctime_ns: int = 0  # of a file: the time of its last change of any kind, which users cannot set


def listed(source: str) -> list[Entry]:
    """List all entries of a source, each directory before its content. Raise SourceError, NodeError."""
    with _reading():
        found = [_entry(source, "", os.stat(source))]  # noqa: PTH116
        waiting = [""] if found[0].kind == "directory" else []
        while waiting:
            below = waiting.pop()
            with os.scandir(f"{source}/{below}") as entries:
                for each in entries:
                    path = f"{below}/{each.name}" if below else each.name
                    entry = _entry(source, path, each.stat(follow_symlinks=False))
                    found.append(entry)
                    if entry.kind == "directory":
                        waiting.append(path)
    return sorted(found)


def _entry(source: str, path: str, found: os.stat_result) -> Entry:
    whole = f"{source}/{path}" if path else source
    if stat.S_ISDIR(found.st_mode):
        return Entry(path, "directory", 0, 0, found.st_mode, "")
    if stat.S_ISREG(found.st_mode):
        return Entry(path, "file", found.st_size, found.st_mtime_ns, found.st_mode, "", found.st_ctime_ns)
    if stat.S_ISLNK(found.st_mode):
        return Entry(path, "link", 0, 0, 0, _target(source, path))
    raise SourceError(f"{whole!a} is no file, directory or link")


def _target(source: str, path: str) -> str:
    """Return the target of a link, as it is in a copy: a relative one that leads out would lead elsewhere there."""
    target, below = os.readlink(f"{source}/{path}"), os.path.dirname(path)  # noqa: PTH115, PTH120
    out = os.path.normpath(os.path.join(below, target)).split("/")[0] == ".."  # noqa: PTH118
    return os.path.join(source, below, target) if out else target  # noqa: PTH118


def fingerprint(source: str, entries: Sequence[Entry]) -> str:
    """Return a hash of the source's path and entries. It changes when a file of the source is written."""
    made = sha256(os.fsencode(source) + b"\0")
    for each in entries:
        text = f"{each.kind} {each.size} {each.mtime_ns} {each.mode & 0o111:o} {each.path}\0{each.target}\0"
        made.update(os.fsencode(text))
    return made.hexdigest()[:32]


def seal(entries: Sequence[Entry]) -> str:
    """Return a hash of a copy that changes when an entry of it is changed, added or removed."""
    made = sha256()
    for each in entries:
        made.update(
            os.fsencode(f"{each.kind} {each.size} {each.mtime_ns} {each.ctime_ns} {each.path}\0{each.target}\0")
        )
    return made.hexdigest()


def room(entries: Sequence[Entry], block: int) -> int:
    """Return the bytes that a copy needs in blocks of this size. Each entry takes at most one extra block."""
    return sum((each.size // block + 2) * block for each in entries)


def copy(source: str, entries: Sequence[Entry], target: str) -> None:
    """Copy a source to a path that does not exist yet. Raise SourceError, NodeError, and OSError for the copy."""
    for each in entries:
        path = f"{target}/{each.path}" if each.path else target
        if each.kind == "directory":
            os.mkdir(path, 0o700)  # noqa: PTH102
        elif each.kind == "link":
            os.symlink(each.target, path)  # noqa: PTH211
    files, lock = _files(source, entries, target), threading.Lock()
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        workers = [pool.submit(_work, files, lock) for _ in range(AT_A_TIME)]  # a Future per file would take 1.6 kB
        try:
            wait(workers, return_when=FIRST_EXCEPTION)
        finally:
            with lock:  # the first failure stops the other workers
                files.close()
        for worker in workers:
            worker.result()
    for each in reversed(entries):
        if each.kind == "directory":
            os.chmod(f"{target}/{each.path}" if each.path else target, 0o500)  # noqa: PTH101


def _files(source: str, entries: Sequence[Entry], target: str) -> Generator[tuple[str, str, Entry]]:
    """Yield the path of each file, the path of its copy, and its entry."""
    for each in entries:
        if each.kind == "file":
            below = f"/{each.path}" if each.path else ""
            yield f"{source}{below}", f"{target}{below}", each


def _work(files: Iterator[tuple[str, str, Entry]], lock: threading.Lock) -> None:
    """Copy files one after the other until all are taken."""
    while True:
        with lock:
            one = next(files, None)
        if one is None:
            return
        _file(*one)


def _file(source: str, target: str, entry: Entry) -> None:
    """Copy one file with its time, read-only. Raise SourceError if it changed after it was listed."""
    with _reading():
        fd = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with Opened(fd):
        _check_unchanged(source, fd, entry)
        with Opened(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)) as new:
            while piece := _piece(fd):
                view = memoryview(piece)
                while view:
                    view = view[os.write(new, view) :]
            _check_unchanged(source, fd, entry)
            os.fchmod(new, entry.mode & 0o555 | 0o400)
            os.utime(new, ns=(entry.mtime_ns, entry.mtime_ns))


def _piece(fd: int) -> bytes:
    with _reading():
        return os.read(fd, _PIECE)


def _check_unchanged(source: str, fd: int, entry: Entry) -> None:
    with _reading():
        found = os.fstat(fd)
    if (found.st_size, found.st_mtime_ns) != (entry.size, entry.mtime_ns):
        raise SourceError(f"{source!a} was changed while it was copied; give a job data that nobody writes to")


@contextmanager
def _reading() -> Iterator[None]:
    """Turn an OSError at the source into a NodeError or a SourceError."""
    try:
        yield
    except OSError as error:
        raise (NodeError if error.errno in AWAY else SourceError)(words(error)) from error


def words(error: OSError) -> str:
    """Return the system's message, with the path if the error has one."""
    return f"{str(error.filename)!a}: {error.strerror}" if error.filename else str(error.strerror)
