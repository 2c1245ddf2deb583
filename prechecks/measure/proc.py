"""Processes, as /proc shows them (proc_pid_stat(5)), and the Slurm job that each belongs to.

Slurm's cgroup plugins, versions 1 and 2, put the job's number into the path: `.../job_123/step_0/...`. From 26.05 on,
version 2 puts the job's SLUID there, unless cgroup.conf says CgroupJobIdPaths=yes: `.../sEKNKTV3WPV500/step_0/...`.
"""

from __future__ import annotations

import os
from collections import namedtuple
from collections.abc import Iterable, Iterator

from prechecks import files

STAT_BYTES = 512  # enough for the pid, the name in parentheses, the state and the parent
WAITS = "D"
ZOMBIE = "Z"


class Process(namedtuple("Process", "pid uid name state parent job", defaults=("",))):
    """A process, and the Slurm job of its cgroup; empty if it has none, or if the cgroup was not read."""

    __slots__ = ()
    pid: int
    uid: int
    name: str
    state: str
    parent: int
    job: str


def processes(pids: Iterable[str] | None = None) -> Iterator[tuple[str, str, str]]:
    """Yield the pid, name and state of these processes, or of all. Skip processes that have ended."""
    with files.Opened(os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)) as proc:
        for pid in os.listdir(proc) if pids is None else pids:  # noqa: PTH208 - as in prechecks.checks.gpu
            if pid.isdigit() and (stat := _stat(proc, pid)):
                yield parse(stat)


def owners() -> dict[str, int]:
    """Return the user id of each process, by pid."""
    found = {}
    with os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdigit():
                try:
                    found[entry.name] = entry.stat().st_uid
                except (FileNotFoundError, ProcessLookupError):
                    continue
    return found


def table(users_from: int) -> dict[int, Process]:
    """Return all processes of root and of users, whose uid is `users_from` or more, by pid.

    If no user has a process, the result is empty, and this reads only the owners.
    """
    uids = owners()
    if all(uid < users_from for uid in uids.values()):
        return {}
    wanted = {pid: uid for pid, uid in uids.items() if uid == 0 or uid >= users_from}
    with files.Opened(os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)) as proc:
        return {int(pid): _process(stat, uid) for pid, uid in wanted.items() if (stat := _stat(proc, pid))}


def _stat(proc: int, pid: str) -> bytes:
    """Return the beginning of /proc/<pid>/stat; empty if the process has ended."""
    try:
        with files.Opened(os.open(f"{pid}/stat", os.O_RDONLY, dir_fd=proc)) as stat:
            return os.read(stat, STAT_BYTES)
    except (FileNotFoundError, ProcessLookupError):
        return b""


def parse(stat: bytes) -> tuple[str, str, str]:
    """Parse `17 (python3) S 1 ...`. The name may contain any character, also parentheses."""
    head, _, rest = stat.rpartition(b") ")
    pid, _, name = head.partition(b" (")
    return pid.decode(), name.decode(errors="replace"), rest[:1].decode()


def _process(stat: bytes, uid: int) -> Process:
    pid, name, state = parse(stat)
    return Process(int(pid), uid, name, state, int(stat.rpartition(b") ")[2].split()[1]))


def cgroup(pid: int) -> str:
    """Return the lines of /proc/<pid>/cgroup; empty if the process has ended."""
    return _text(f"/proc/{pid}/cgroup")


def title(pid: int) -> str:
    """Return the command line, such as `slurmstepd: [123.batch]`; empty if the process has ended."""
    return _text(f"/proc/{pid}/cmdline")


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - as in prechecks.checks.gpu
            return file.read()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def job(cgroups: str) -> str:
    """Return the Slurm job in the lines of /proc/<pid>/cgroup, by its number or its SLUID; empty for none."""
    for line in cgroups.splitlines():
        above, step, _ = line.partition("/step_")
        name = above.rpartition("/")[2]
        number = name.removeprefix("job_")
        if step and number != name and number.isdigit():
            return number
        if step and "slurmstepd.scope/" in above:
            return name
    return ""


def user(uid: int) -> str:
    """Return the user's name; the uid as text if the node does not know the user."""
    import pwd  # noqa: PLC0415 - only the forked child needs it: a directory service may be slow

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
