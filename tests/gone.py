"""Check whether a process has ended, and wait for its end."""

from pathlib import Path

from tests.waiting import until


def gone(pid: int) -> bool:
    """Return whether a process has ended. A zombie has ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state in "ZX"


def until_gone(*pids: int) -> None:
    """Wait until each of these processes has ended."""
    for pid in pids:
        until(lambda pid=pid: gone(pid), f"the end of process {pid}")  # type: ignore[misc]
