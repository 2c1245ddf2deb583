"""The working directories of a user's jobs, remembered at each submission. Without slurmdbd, only this file has them.

`~/.local/state/slurm_plugin/directories` has a JSON string on each line. It only helps to find jobs: no job needs
it. Standard library only.
"""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from slurm_plugin.records import job_directory

STATE_HOME: Final = "XDG_STATE_HOME"  # the XDG Base Directory Specification
FILE: Final = "directories"
MOST: Final = 100  # the number of directories that are kept


def state_directory() -> Path:
    """Return the directory of this user's registers. Raise RuntimeError if the user has no home."""
    home = os.environ.get(STATE_HOME, "")
    top = Path(home) if home.startswith("/") else Path.home() / ".local" / "state"
    return top / "slurm_plugin"


def read() -> list[str]:
    """Return the directories, the newest last. Leave out malformed lines."""
    found: dict[str, None] = {}
    with suppress(RuntimeError):
        for line in (job_directory.read(state_directory() / FILE, os.geteuid()) or "").splitlines():
            with suppress(ValueError, RecursionError):
                if isinstance(path := json.loads(line), str) and path.startswith("/"):
                    found.pop(path, None)
                    found[path] = None
    return [*found][-MOST:]


def add(directory: str) -> None:
    """Remember a directory. Ignore a home that cannot be written."""
    from prechecks import files  # noqa: PLC0415 - a dry run does not need it

    with suppress(OSError, RuntimeError):
        path, there = state_directory() / FILE, read()
        if there[-1:] == [directory]:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        if len(there) < MOST and path.exists() and path.stat().st_size < job_directory.MOST_BYTES:
            files.append(path, json.dumps(directory) + "\n")
        else:
            kept = [each for each in there if each != directory][1 - MOST :]
            files.replace(path, "".join(f"{json.dumps(each)}\n" for each in (*kept, directory)), mode=0o600)
