"""The processes that a process has started."""

import os
from pathlib import Path


def children(pid: int | None = None) -> set[int]:
    """Its pids, of those that it has not waited for, too; without a pid, of this process' first thread."""
    pid = os.getpid() if pid is None else pid
    return set(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
