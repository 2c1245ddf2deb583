"""The directory of a job, `<workdir>/.slurm_plugin/<job id>/`, with hostfiles and a history of its attempts.

A series is a file in it with one JSON object per line, each with a time `t`: `usage.jsonl`, `progress.jsonl`.

`job.yaml` and `job.sh` are what the job was submitted as: the spec and the batch script. `slurm-plugin submit` and
`clone` write both, `slurm-plugin run` the spec, and the supervisor the script that `slurm-plugin sbatch` has made. Only
the job's user may read them: a spec may have passwords in `env`. An array has them in the directory of its own id.

The working directories of a user's jobs are remembered at each submission, in `~/.local/state/slurm_plugin/directories`
with a JSON string on each line. This only helps to find jobs; without slurmdbd, only this file has them.
"""

import errno
import json
import math
import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

OURS = ".slurm_plugin"
ATTEMPTS = "attempts.jsonl"
TURN = "turn"  # the run that may write now, see slurm_plugin.supervisor.guard.fencing
SPEC = "job.yaml"
SCRIPT = "job.sh"
MOST_SCRIPT_BYTES = 4 << 20  # slurm.conf's max_script_size
MOST_BYTES = 1 << 20  # most bytes that `read` returns: thousands of attempts
SERIES_BYTES = MOST_BYTES - (1 << 16)  # most bytes of a series, so that `read` returns all of it
LONGEST_SLOT_S = 1e9  # more than the time of any job
LARGEST, LATEST = 1e18, 1e11  # above all sizes in bytes, and above all times in seconds since the epoch
_JOB = re.compile("[1-9][0-9]{0,9}", re.ASCII)
# The names of slurm_plugin's files in a job's directory, and those that it writes before it renames them.
_NAMES = re.compile(
    r"(?:hostfile(?:\.mpich)?|jobstart_hccl\.json|slurm_script\.\d+|log|turn|launch\.json|hold\.(?:request|json)|job\.(?:yaml|sh)|"
    r"(?:output|diagnosis)\.json|task_prolog\.sh|(?:attempts|usage|progress|slow|answers)\.jsonl|requests|errors|ascend|mindspore|stage-in\..+)",
    re.DOTALL,
)


def directory(workdir: Path, job_id: int, *, needed: bool = False) -> Path:
    """Make the job's directory and return its path.

    If it cannot be made, or another user owns it, return a path at which every write fails. Raise OSError if `needed`.
    """
    path = workdir.resolve() / OURS / str(job_id)
    try:
        path.mkdir(mode=0o755, parents=True, exist_ok=True)  # no other user may write there: its files are trusted
        found = path.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():  # if others may write to the workdir
            raise FileExistsError(errno.EEXIST, "it is not yours, remove it or use another workdir", str(path))
    except OSError:
        if needed:
            raise
        return Path(f"{os.devnull}{path}")  # not `path`: another user could make it later
    return path


def is_job(name: str) -> bool:
    """Return whether a name in OURS is that of a job's directory."""
    return _JOB.fullmatch(name) is not None


def is_ours(name: str) -> bool:
    """Return whether slurm_plugin writes a file of this name in a job's directory."""
    return _NAMES.fullmatch(re.sub(r"^\.(.+)\.\d+$", r"\1", name, flags=re.DOTALL)) is not None


def write(path: Path, text: str) -> None:
    """Write a file atomically and sync it to disk, with the mode that the umask gives. Raises OSError."""
    from prechecks import files  # noqa: PLC0415 - a rendered job has the names in this module, and writes nothing

    files.replace(path, text, mode=None, durable=True)


def write_texts(workdir: Path, job_id: int, texts: Mapping[str, str], spare: Callable[[], str] | None) -> Path:
    """Write files into the job's directory, or into `spare()` if the file system or a quota is full. Return where.

    Raise OSError: any other, and also these if `spare` is None.
    """
    try:
        found = directory(workdir, job_id, needed=True)
        for name, text in texts.items():
            write(found / name, text)
    except OSError as error:
        if spare is None or error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        found = Path(spare())
        for name, text in texts.items():
            write(found / name, text)
    return found


def keep(workdir: Path, job_id: int, *, spec: bytes | None = None, script: str | bytes | None = None) -> None:
    """Write SPEC and SCRIPT into the job's directory. Ignore errors: the workdir may be missing on this machine."""
    from prechecks import files  # noqa: PLC0415 - as above

    with suppress(OSError):
        if not workdir.is_dir():
            return
        made = directory(workdir, job_id)
        for name, content in ((SPEC, spec), (SCRIPT, script)):
            if content is not None:
                data = content if isinstance(content, bytes) else content.encode("utf-8", "surrogateescape")
                files.replace(made / name, data, mode=0o600)


def kept(path: Path, name: str, owner: int | None = None) -> bytes | None:
    """Return SPEC or SCRIPT of a job; None if it cannot be read. `owner`: the required uid, for who will run it."""
    return _content(path / name, MOST_SCRIPT_BYTES, owner)


def record(path: Path, attempt: Mapping[str, object]) -> None:
    """Append one attempt to the job's history, and sync it to disk. Raise OSError."""
    from prechecks import files  # noqa: PLC0415 - as above

    files.append(path / ATTEMPTS, json.dumps(attempt, separators=(",", ":")) + "\n", durable=True)


def last_cause(path: Path, *, before: int, cluster: str = "") -> str:
    """Return the cause that ended attempt `before` - 1; empty if no script recorded it."""
    last = (attempts(path, cluster) or [{}])[-1]
    return str(last.get("cause", "")) if last.get("n") == before - 1 else ""


def attempts(path: Path, cluster: str = "") -> list[dict[str, Any]] | None:
    """Return the recorded attempts, oldest first; None if the file cannot be read. Skip lines that are not objects.

    Skip the attempts of another cluster's job with the same id.
    """
    text = read(path / ATTEMPTS)
    if text is None:
        return None
    found = [line for each in text.splitlines() if isinstance(line := _object(each), dict)]
    return [line for line in found if not theirs(line.get("cluster"), cluster)]


def theirs(named: object, cluster: str) -> bool:
    """Return whether a file with the cluster name `named` belongs to a job of another cluster with the same id.

    Return False if one of the two names is empty.
    """
    return bool(named and cluster) and str(named).strip() != cluster.strip()


def read_object(path: Path) -> dict[str, Any] | None:
    """Return the JSON object in a file; None if the file cannot be read or contains no object."""
    found = _object(read(path) or "")
    return found if isinstance(found, dict) else None


def add_to_series(
    path: Path, lines: Iterable[Mapping[str, object]], slot_s: Callable[[Mapping[str, Any]], float]
) -> None:
    """Append lines to a series, and thin it out if it has more than SERIES_BYTES. Raise OSError.

    `slot_s`: see `thinned`. Only one process may write a series at a time.
    """
    from prechecks import files  # noqa: PLC0415 - as above

    fresh = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    if fresh:
        files.append(path, fresh)
    if path.lstat().st_size > SERIES_BYTES:
        kept = thinned([(line, slot_s(line)) for line in series(path)])
        files.replace(path, "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in kept), mode=None)


def thinned(lines: Sequence[tuple[dict[str, Any], float]], most: int = SERIES_BYTES // 2) -> list[dict[str, Any]]:
    """Return lines of at most `most` bytes from the whole time: for each attempt and node, one line per time slot.

    Each given line has the shortest length of its slots in seconds. The slots double in length until the lines fit.
    """
    factor = 1.0
    left = [(line, slot_s, len(json.dumps(line, separators=(",", ":"))) + 1) for line, slot_s in lines]
    while sum(size for _, _, size in left) > most and factor < LONGEST_SLOT_S:
        factor *= 2
        taken, kept = set(), []
        for line, slot_s, size in left:
            place = (str(line.get("attempt")), str(line.get("node")), line["t"] // (slot_s * factor))
            if place not in taken:
                taken.add(place)
                kept.append((line, slot_s, size))
        left = kept
    while sum(size for _, _, size in left) > most:  # too many nodes and attempts for one line each
        left = left[len(left) // 2 + 1 :]
    return [line for line, _, _ in left]


def series(path: Path, owner: int | None = None, most: int = MOST_BYTES) -> list[dict[str, Any]]:
    """Return the lines in the last `most` bytes of a series that have a time. Leave out all others."""
    found = (_object(line) for line in (read(path, owner, most) or "").splitlines())
    return [line for line in found if isinstance(line, dict) and (number(line.get("t")) or LATEST) < LATEST]


def number(value: object) -> float | None:
    """Return a number from a user's file; None if the value is negative, not finite or not a number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < LARGEST:
        return None
    return float(value)


def read(path: Path, owner: int | None = None, most: int = MOST_BYTES) -> str | None:
    """Return the last `most` bytes of a file; None if it cannot be read. The first line may be truncated.

    `owner`: the required uid. Root may read this file of a user, so do not follow a link or wait for a pipe.
    """
    found = _content(path, most, owner)
    return None if found is None else found.decode(errors="replace")


def _content(path: Path, most: int, owner: int | None = None) -> bytes | None:
    """Return the last `most` bytes of a regular file. Do not follow a link or wait for a pipe."""
    from prechecks import files  # noqa: PLC0415 - as above

    try:
        with files.Opened(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)) as fd:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode) or owner not in (None, found.st_uid):
                return None
            return os.pread(fd, most, max(0, found.st_size - most))
    except OSError:
        return None


def _object(line: str) -> Any:
    """Return the value of a user's text. NaN and infinity, which JSON lacks, are None."""
    try:
        return json.loads(line, parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError):
        return None


def _finite(number: str) -> float | None:
    return value if math.isfinite(value := float(number)) else None


STATE_HOME: Final = "XDG_STATE_HOME"  # the XDG Base Directory Specification
REMEMBERED: Final = "directories"
MOST_REMEMBERED: Final = 100  # the number of directories that are kept


def state_directory() -> Path:
    """Return the directory of this user's registers. Raise RuntimeError if the user has no home."""
    home = os.environ.get(STATE_HOME, "")
    top = Path(home) if home.startswith("/") else Path.home() / ".local" / "state"
    return top / "slurm_plugin"


def remembered() -> list[str]:
    """Return the directories, the newest last. Leave out malformed lines."""
    found: dict[str, None] = {}
    with suppress(RuntimeError):
        for line in (read(state_directory() / REMEMBERED, os.geteuid()) or "").splitlines():
            with suppress(ValueError, RecursionError):
                if isinstance(path := json.loads(line), str) and path.startswith("/"):
                    found.pop(path, None)
                    found[path] = None
    return [*found][-MOST_REMEMBERED:]


def remember(directory: str) -> None:
    """Remember a directory. Ignore a home that cannot be written."""
    from prechecks import files  # noqa: PLC0415 - a dry run does not need it

    with suppress(OSError, RuntimeError):
        path, there = state_directory() / REMEMBERED, remembered()
        if there[-1:] == [directory]:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        if len(there) < MOST_REMEMBERED and path.exists() and path.stat().st_size < MOST_BYTES:
            files.append(path, json.dumps(directory) + "\n")
        else:
            kept = [each for each in there if each != directory][1 - MOST_REMEMBERED :]
            files.replace(path, "".join(f"{json.dumps(each)}\n" for each in (*kept, directory)), mode=0o600)
