"""Keep a run that Slurm has lost from writing the job's files, while the next run writes them.

The file `turn` in the job's directory names the one run that may write the job's files. If Slurm loses all nodes of a
run, it starts the next run on other nodes, while the old run may still reach the files. The next run writes its number
into `turn` and waits `WAIT_S`. The guard on the old run's first node reads `turn` every `LOOK_S` and ends its ranks. An
old run that cannot read `turn` cannot write the other files either.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

from prechecks.child import Child
from slurm_plugin.records import job_directory

LOOK_S = 1.0
WAIT_S = 3.0
SEEN, LOST = b"s", b"x"


def take(directory: Path, restart: int, attempt: int, cluster: str = "") -> None:
    """Write this run and its current attempt of the job into `turn`. Raise OSError on failure."""
    job_directory.write(directory / job_directory.TURN, f"{restart} {attempt} {cluster}".rstrip() + "\n")


def taken(directory: str | Path, cluster: str = "") -> tuple[int, int]:
    """Return the run and the attempt in `turn`; -1 and -1 if no run of this cluster wrote the file."""
    text = job_directory.read(Path(directory, job_directory.TURN), os.geteuid())
    try:
        restart, attempt, *name = (text or "").split(maxsplit=2)
        return (-1, -1) if job_directory.theirs("".join(name), cluster) else (int(restart), int(attempt))
    except ValueError:
        return -1, -1


def watched(directory: str, restart: int, cluster: str = "", *, seen: bool = False) -> int:
    """Start a process that watches `turn`. Return the read end of a pipe from this process.

    The process writes `SEEN` when `turn` names this run, then `LOST` when `turn` names a later run. The pipe is closed
    when the process ends. `seen`: whether an earlier process has written SEEN. Before SEEN, the process ignores higher
    numbers, because they are old.

    It is a separate process because a read from a hanging file server must not delay the guard or its step.
    """
    guard = os.getpid()

    def watch(say: Callable[[bytes], None]) -> bytes:
        known = seen
        while os.getppid() == guard:
            now = taken(directory, cluster)[0]
            if now == restart and not known:
                known = True
                say(SEEN)
            if known and now > restart:
                return LOST
            time.sleep(LOOK_S)
        return b""

    return Child(watch).pipe
