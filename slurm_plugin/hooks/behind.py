"""A child that was left behind in a file system that hangs: SIGKILL takes effect when its system call returns.

Where such a child is remembered, for this boot (slurm_plugin.hooks.marker), no other one is sent after it.
"""

from __future__ import annotations

from collections.abc import Mapping

from slurm_plugin.hooks import marker

TYPE_CHECKING = False  # as in prechecks: `typing` costs a hook 3 ms
if TYPE_CHECKING:
    from typing import Any

_STATE, _STARTED = 0, 19  # fields of proc_pid_stat(5) after the name


def remember(site: Mapping[str, Any], item: str, pid: int) -> None:
    """Keep which process it is; the next one of this item takes its place."""
    marker.keep(site, item, {"pid": pid, "started": _started(pid)})


def there(site: Mapping[str, Any], item: str) -> int:
    """The process that was left behind and is there still; 0 for none."""
    facts = marker.load(site, item)
    pid, started = facts.get("pid", 0), facts.get("started")
    return int(pid) if started and _started(pid) == started else 0


def _started(pid: int) -> str:
    """When a process was started, in ticks since the boot: no two of one number have the same. Empty once it ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - pathlib costs a hook 5 ms
            fields = file.read().rpartition(b") ")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if fields[_STATE] in (b"X", b"Z") else fields[_STARTED].decode()
