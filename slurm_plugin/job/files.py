"""The job's own directory, `<workdir>/.slurm_plugin/<job id>/`: hostfiles, and one line for every attempt."""

import errno
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

OURS = ".slurm_plugin"
ATTEMPTS = "attempts.jsonl"
MOST_BYTES = 1 << 20  # of a history that a stranger's command reads: thousands of attempts


def directory(workdir: Path, job_id: int) -> Path:
    """The job's directory, made where it is missing. Raises FileExistsError where somebody else has made it."""
    path = workdir.resolve() / OURS / str(job_id)
    path.mkdir(mode=0o755, parents=True, exist_ok=True)  # whatever the umask: what stands in there is believed
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():  # in a directory that many may write to
        raise FileExistsError(errno.EEXIST, "it is not yours, remove it or use another workdir", str(path))
    return path


def write(path: Path, text: str) -> None:
    """Replace a file as a whole: readers see the old one or the new one, and it is on disk when this returns.

    Raises OSError, and then leaves nothing of its own behind.
    """
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with fresh.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def record(path: Path, attempt: Mapping[str, object]) -> None:
    """Append one attempt to the job's history; it is on disk when this returns."""
    with (path / ATTEMPTS).open("a", encoding="utf-8") as file:
        file.write(json.dumps(attempt, separators=(",", ":")) + "\n")
        file.flush()
        os.fsync(file.fileno())


def last_cause(path: Path, *, before: int, cluster: str = "") -> str:
    """Why the attempt just before number `before` ended; empty where no script of ours recorded one."""
    last = (_attempts(path, cluster) or [{}])[-1]
    return str(last.get("cause", "")) if last.get("n") == before - 1 else ""


def history(workdir: Path, job_id: int, cluster: str = "") -> list[dict[str, Any]] | None:
    """The attempts of a job, oldest first, without what is no object; None where no file can be read."""
    return _attempts(workdir / OURS / str(job_id), cluster)


def _attempts(path: Path, cluster: str) -> list[dict[str, Any]] | None:
    """The lines of this cluster's job.

    It is the user's file, and root may ask: no link is followed to it, a pipe in its place holds nobody up.
    """
    text = _text(path / ATTEMPTS)
    if text is None:
        return None
    found = [line for each in text.splitlines() if isinstance(line := _object(each), dict)]
    return [line for line in found if not theirs(line.get("cluster"), cluster)]


def theirs(named: object, cluster: str) -> bool:
    """Whether what names this cluster is of another one's job, which has the same number and a file system with ours.

    Where one of the two names is not known, it is taken for ours.
    """
    return bool(named and cluster) and str(named).strip() != cluster.strip()


def read_object(path: Path) -> dict[str, Any] | None:
    """The one JSON object of such a file; None where it cannot be read, or is none."""
    found = _object(_text(path) or "")
    return found if isinstance(found, dict) else None


def _text(path: Path) -> str | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            return None
        # The newest of it; what it begins with may be cut off.
        return os.pread(fd, MOST_BYTES, max(0, found.st_size - MOST_BYTES)).decode(errors="replace")
    finally:
        os.close(fd)


def _object(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
