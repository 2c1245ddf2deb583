"""Save all of a job's logs and records, as a directory or a .tar.gz. Links are not followed. Standard library only.

`launch.json` is left out: it has the job's environment, which may have passwords. Checkpoints are not saved either.
"""

import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, BinaryIO, Final

from slurm_plugin.errors import UsageError
from slurm_plugin.logs import tail
from slurm_plugin.records import job_directory, launch_record

if TYPE_CHECKING:
    import tarfile

ARCHIVES: Final = (".tar.gz", ".tgz")
RECORDS: Final = "records"  # the folder in the result
LOGS: Final = "logs"
REPORTS: Final = "reports"
DEEPEST: Final = 8  # levels of directories in the job's own
_BLOCK: Final = 1 << 20


def save(
    target: Path, job_id: int, directory: Path, logs: Sequence[Path], reports: Mapping[str, str] = MappingProxyType({})
) -> Path:
    """Write the files to `target` atomically and return its path. Raises UsageError if it exists or cannot be made.

    `directory`: the job's own. `reports`: more files, name -> text.
    """
    if os.path.lexists(target):
        raise UsageError(f"{target}: it exists\n  give a path that does not, of a directory or of a FILE.tar.gz")
    fresh = target.with_name(f".{target.name}.{os.getpid()}")
    contents = [*_logs(logs), *_records(directory)]
    try:
        with tempfile.TemporaryDirectory() as folder:
            for name, text in reports.items():
                Path(folder, name).write_text(text, encoding="utf-8")
                contents.append((f"{REPORTS}/{name}", Path(folder, name)))
            if target.name.endswith(ARCHIVES):
                _archive(fresh, f"job-{job_id}", contents)
            else:
                _copy(fresh, contents)
        fresh.rename(target)
    except OSError as error:
        raise UsageError(f"{error.filename or target}: {error.strerror}\n  nothing was saved") from error
    finally:
        if fresh.is_dir():
            shutil.rmtree(fresh, ignore_errors=True)
        else:
            fresh.unlink(missing_ok=True)
    return target


def left_out(paths: Sequence[Path]) -> list[Path]:
    """Return the logs that are there but are not saved: links, what is no regular file, and what cannot be read."""

    def is_saved(path: Path) -> bool:
        with _opened(path) as found:
            return found is not None

    return [path for path in dict.fromkeys(paths) if os.path.lexists(path) and not is_saved(path)]


def _logs(paths: Sequence[Path]) -> Iterator[tuple[str, Path]]:
    """Yield the name in the result and the path of each log. Two logs with one name get numbers."""
    seen: dict[str, int] = {}
    for path in dict.fromkeys(paths):
        number = seen[path.name] = seen.get(path.name, -1) + 1
        yield f"{LOGS}/{path.name}" + (f".{number}" if number else ""), path


def _records(directory: Path, below: str = "", depth: int = 0) -> Iterator[tuple[str, Path]]:
    """Yield the name in the result and the path of each record in the job's directory."""
    try:
        entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if not below and (entry.name == launch_record.FILE or not job_directory.is_ours(entry.name)):
            continue
        if entry.is_dir(follow_symlinks=False):
            if depth < DEEPEST:
                yield from _records(Path(entry.path), f"{below}{entry.name}/", depth + 1)
        elif entry.is_file(follow_symlinks=False):
            yield f"{RECORDS}/{below}{entry.name}", Path(entry.path)


@contextmanager
def _opened(path: Path) -> Iterator[tuple["_Whole", os.stat_result] | None]:
    """Open a file without following a link. Yield None for what cannot be read."""
    try:
        fd = os.open(path, tail.FLAGS | os.O_NOFOLLOW)
    except OSError:
        yield None
        return
    try:
        found = os.fstat(fd)
        yield (_Whole(fd, found.st_size), found) if stat.S_ISREG(found.st_mode) else None
    finally:
        os.close(fd)


class _Whole:
    """So many bytes of a file: what is appended meanwhile is left out, and what is cut off is zeros."""

    def __init__(self, fd: int, size: int) -> None:
        self._fd, self._left = fd, size

    def read(self, size: int = _BLOCK) -> bytes:
        """Return the next bytes, as many as there are left."""
        count, found = min(size, self._left), b""
        while len(found) < count:
            found += os.read(self._fd, count - len(found)) or bytes(count - len(found))
        self._left -= count
        return found


def _new(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")


def _archive(path: Path, top: str, contents: Sequence[tuple[str, Path]]) -> None:
    import tarfile  # noqa: PLC0415 - only for an archive

    with (
        _new(path) as file,
        tarfile.open(fileobj=file, mode="w:gz", compresslevel=6) as archive,
    ):
        for name, source in contents:
            with _opened(source) as found:
                if found:
                    archive.addfile(_header(tarfile.TarInfo(f"{top}/{name}"), found[1]), found[0])


def _header(info: "tarfile.TarInfo", found: os.stat_result) -> "tarfile.TarInfo":
    info.size, info.mtime, info.mode = found.st_size, int(found.st_mtime or time.time()), 0o600
    return info


def _copy(path: Path, contents: Sequence[tuple[str, Path]]) -> None:
    path.mkdir(mode=0o700)
    for name, source in contents:
        with _opened(source) as found:
            if found is None:
                continue
            target = path / name
            target.parent.mkdir(parents=True, exist_ok=True)
            with _new(target) as file:
                while block := found[0].read():
                    file.write(block)
            os.utime(target, ns=(found[1].st_atime_ns, found[1].st_mtime_ns))
