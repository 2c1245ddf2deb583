"""The job's own directory, `<workdir>/.slurm_plugin/<job id>/`: hostfiles, and one line for every attempt."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

ATTEMPTS = "attempts.jsonl"


def directory(workdir: Path, job_id: int) -> Path:
    """The job's directory, made where it is missing."""
    path = workdir.resolve() / ".slurm_plugin" / str(job_id)
    path.mkdir(parents=True, exist_ok=True)
    return path


def write(path: Path, text: str) -> None:
    """Replace a file as a whole: readers see the old one or the new one, and after an error nothing new is there."""
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


def last_cause(path: Path, *, before: int) -> str:
    """Why the attempt just before number `before` ended; empty where no script of ours recorded one."""
    try:
        last = json.loads((path / ATTEMPTS).read_text(encoding="utf-8").splitlines()[-1])
        return str(last["cause"]) if last["n"] == before - 1 else ""
    except (OSError, ValueError, LookupError, TypeError):  # the user's own file: cut off, or edited
        return ""
