"""The child processes of a process."""

import os
from pathlib import Path


def children(pid: int | None = None) -> set[int]:
    """Return the pids of the children of `pid`, zombies included; without `pid`, of this process's main thread."""
    pid = os.getpid() if pid is None else pid
    return set(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
