"""The processes of a job on this node: found in /proc, and ended for good, so that a fresh attempt meets none of them.

Whose they are, they say themselves: Slurm gives every process of a job SLURM_JOB_ID, and a site with cgroups a cgroup
of the job's; what was started by ssh has what the launch was told (SLURM_PLUGIN_DIRECTORY).
"""

import os
import signal
import time
from collections.abc import Collection, Iterator
from contextlib import suppress

SPARED = {"SLURM_PLUGIN_SPARED": "1"}  # in the environment of what outlives an attempt: guards, people's own shells
_SPARED = b"SLURM_PLUGIN_SPARED=1"
PAUSE_S = 0.01
_CHUNK = 1 << 16


def wipe(job_id: int, directory: str, keep: Collection[int], deadline_s: float) -> int:
    """SIGKILL everything of this job that is not spared, until nothing is left; how many were left at the deadline.

    `directory` is the job's own; `keep` are pids. What is left hangs in the kernel.
    """
    end = time.monotonic() + deadline_s
    while found := list(of_job(job_id, directory, keep)):
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > end:
            return len(found)
        time.sleep(PAUSE_S)
    return 0


def of_job(job_id: int, directory: str, keep: Collection[int]) -> Iterator[int]:
    """The pids of this user's living processes of the job on this node, without the spared ones."""
    words = (f"SLURM_JOB_ID={job_id}".encode(), b"SLURM_PLUGIN_DIRECTORY=" + os.fsencode(directory))
    group = f"/job_{job_id}/".encode()
    me = os.geteuid()
    for name in os.listdir("/proc"):  # noqa: PTH208 - a guard on each of 10,000 nodes does without pathlib
        if not name.isdigit() or int(name) in keep or int(name) == os.getpid():
            continue
        try:
            if os.stat(f"/proc/{name}").st_uid != me:  # noqa: PTH116
                continue
            environ = _read(f"/proc/{name}/environ").split(b"\0")
            # A zombie's is empty, and so is that of one that cannot be read; its cgroup still says whose it is.
            if _SPARED in environ or _dead(name):
                continue
            if any(word in environ for word in words) or group in _read(f"/proc/{name}/cgroup"):
                yield int(name)
        except OSError:  # it has ended meanwhile
            continue


def _dead(name: str) -> bool:
    """Whether a process is a zombie, which nobody can kill and which does nothing."""
    return _read(f"/proc/{name}/stat").rpartition(b")")[2].split()[:1] in ([b"Z"], [b"X"])


def _read(path: str) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except PermissionError:  # set-uid, or not dumpable
        return b""
    try:
        parts = []
        while part := os.read(fd, _CHUNK):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(fd)
