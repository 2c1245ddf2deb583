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
LOOKS = 2  # that find nothing: one may miss a process that forks and ends just then, or begins another program
_ID = b"SLURM_JOB_ID="
_CHUNK = 1 << 16


def wipe(job_id: int, directory: str, keep: Collection[int], deadline_s: float) -> int:
    """SIGKILL everything of this job that is not spared, until nothing is left; how many were left at the deadline.

    `directory` is the job's own; `keep` are pids. What is left hangs in the kernel.
    """
    end, clear = time.monotonic() + deadline_s, 0
    while clear < LOOKS:
        found = signal_all(job_id, directory, keep, signal.SIGKILL)
        clear = 0 if found else clear + 1
        if found and time.monotonic() > end:
            return found
        time.sleep(PAUSE_S)
    return 0


def signal_all(job_id: int, directory: str, keep: Collection[int], number: int) -> int:
    """Send a signal to everything of this job that is not spared; how many processes that were."""
    found = list(of_job(job_id, directory, keep))
    for pid in found:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
    return len(found)


def of_job(job_id: int, directory: str, keep: Collection[int]) -> Iterator[int]:
    """The pids of this user's living processes of the job on this node, without the spared ones."""
    told = b"SLURM_PLUGIN_DIRECTORY=" + os.fsencode(directory)
    number = str(job_id).encode()
    group = b"/job_%b/" % number
    me = os.geteuid()
    for name in os.listdir("/proc"):  # noqa: PTH208 - a guard on each of 10,000 nodes does without pathlib
        if not name.isdigit() or int(name) in keep or int(name) == os.getpid():
            continue
        try:
            if os.stat(f"/proc/{name}").st_uid != me:  # noqa: PTH116
                continue
            if (thread := _living(name)) is None:
                continue
            # That of one that cannot be read is empty; its cgroup still says whose it is.
            environ = _read(f"{thread}/environ").split(b"\0")
            if _SPARED in environ:
                continue
            # A job that the program submitted has inherited what that was told, and has a number of its own.
            ids = [word for word in environ if word.startswith(_ID)] or [_ID + number] * (told in environ)
            inside = _read(f"{thread}/cgroup")
            # pam_slurm_adopt puts whoever logs in by ssh there; ranks that come by ssh say what they were told.
            if _ID + number in ids or (group in inside and b"/step_extern" not in inside):
                yield int(name)
        except OSError:  # it has ended meanwhile
            continue


def _living(pid: str) -> str | None:
    """Where a process tells of itself; None for a zombie, which nobody can kill and which does nothing.

    Its first thread may have ended, and look like one, while another still hangs in a write.
    """
    if not _ended(process := f"/proc/{pid}"):
        return process
    threads = (f"{process}/task/{thread}" for thread in os.listdir(f"{process}/task"))  # noqa: PTH208
    return next((thread for thread in threads if not _ended(thread)), None)


def _ended(task: str) -> bool:
    return _read(f"{task}/stat").rpartition(b")")[2].split()[:1] in ([b"Z"], [b"X"])


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
