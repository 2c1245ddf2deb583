"""The processes of a job on this node: signal them while they run, and kill all of them before the next attempt.

A process belongs to the job if its environment has the job's SLURM_JOB_ID, if it has only the job's
SLURM_PLUGIN_DIRECTORY, as after ssh, or if it is in the job's cgroup (this process's cgroup up to the step).

A user can neither kill nor freeze Slurm's cgroups: root owns `cgroup.kill` and `cgroup.freeze` (seen on 26.05). So each
scan signals each process as soon as it finds it, newest first, and then the process groups: a child cannot escape a
signal to its group. That ends a program that forks all the time.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Final

from prechecks import files
from prechecks.child import stat
from slurm_plugin.supervisor import log

SPARED = {"SLURM_PLUGIN_SPARED": "1"}  # marks processes that outlive an attempt: guards, shells of users
_SPARED = b"SLURM_PLUGIN_SPARED=1"
PAUSE_S = 0.01
SCANS = 2  # scans in a row that must find nothing: one scan may miss a process that is just calling execve
# The limit of scans that find nothing while processes of the user end. Such a process may have been the job's and left
# a child that the scan did not see. It may also belong to another job that forks all the time.
UNSURE_SCANS = 50
ROUNDS = 5  # the most passes over /proc in one scan
STOPPED, ENDED = (b"T", b"t"), (b"Z", b"X")  # states in /proc/PID/stat
_ID = b"SLURM_JOB_ID="
_STEP, _EXTERN = b"/step_", b"/step_extern"
_CHUNK = 1 << 16

SIGNALS: Final[frozenset[int]] = frozenset({signal.SIGUSR1, signal.SIGUSR2})
SAVE_AGAIN_S: Final = 1.0
DEADLINE_S = 10.0  # for py-spy on one process
MOST = 16  # the most processes of a node that py-spy dumps
MOST_BYTES = 16384  # the most bytes printed of one dump
# Launchers forward a signal to all their ranks. Guards signal the ranks that have a handler, and skip the launchers.
# The names are those of /proc/PID/comm.
_LAUNCHERS: Final = frozenset({
    "srun", "mpirun", "mpiexec", "orterun", "prterun", "prte", "prted", "orted", "mpiexec.hydra", "hydra_pmi_proxy",
    "hydra_bstrap_pr", "horovodrun", "starter", "starter-suid",
})  # fmt: skip
_SHELLS: Final = frozenset({"bash", "sh", "dash"})  # around a program; also the one of launch.log_copy


def wipe(job_id: int, directory: str, keep: Collection[int], deadline_s: float) -> int:
    """Send SIGKILL to all processes of this job that are not spared. Return how many were left at the deadline.

    `directory` is the job's, `keep` are pids to spare. Processes that are left hang in the kernel or fork too fast.
    """
    return _until_quiet(Scan(job_id, directory, keep), signal.SIGKILL, deadline_s)


def freeze(job_id: int, directory: str, keep: Collection[int], deadline_s: float) -> int:
    """Send SIGSTOP to all processes of this job. The parameters and the result are as in `wipe`."""
    return _until_quiet(Scan(job_id, directory, keep, quiet=STOPPED), signal.SIGSTOP, deadline_s)


def _until_quiet(scan: "Scan", number: int, deadline_s: float) -> int:
    end, before = time.monotonic() + deadline_s, set[int]()
    sure = scans = 0  # since the last process was found
    while sure < SCANS and scans < UNSURE_SCANS:
        found = scan.signal(number)
        sure, scans = (0, 0) if found else (sure + (not scan.missed), scans + 1)
        if (found or scan.missed) and time.monotonic() > end:
            return max(1, len(found))
        if found <= before:  # new processes may have children by now: scan again without a pause
            time.sleep(PAUSE_S)
        before = found
    return 0


def signal_all(job_id: int, directory: str, keep: Collection[int], number: int) -> int:
    """Send a signal to all processes of this job that are not spared. Return their number."""
    return len(Scan(job_id, directory, keep).signal(number))


def of_job(job_id: int, directory: str, keep: Collection[int]) -> Iterator[int]:
    """Yield the pids of the job's living processes on this node that belong to this user and are not spared."""
    return Scan(job_id, directory, keep).pids()


class Scan:
    """Scans for a job's processes on this node. It ignores processes in a `quiet` state of /proc/PID/stat."""

    def __init__(self, job_id: int, directory: str, keep: Collection[int], quiet: Collection[bytes] = ()) -> None:
        self._id, self._keep = _ID + str(job_id).encode(), {*keep, os.getpid()}
        self._told = b"SLURM_PLUGIN_DIRECTORY=" + os.fsencode(directory)
        self._quiet = quiet
        self._steps = steps_of(_read("/proc/self/cgroup"))
        self.missed = False  # whether a process ended or changed before the last scan could read its job
        self._blank: set[int] = set()  # pids with an empty environment: they end, call execve, or never have one
        self._groups: dict[int, bool] = {}  # process group: whether all its processes seen so far are the job's

    def signal(self, number: int) -> set[int]:
        """Send a signal to all processes that one scan finds and to their process groups. Return the pids."""
        found = set()
        for pid in self.pids():
            found.add(pid)
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        for group in [group for group, whole in self._groups.items() if whole and found]:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(group, number)
        return found

    def pids(self) -> Iterator[int]:
        """Yield the pids of one scan, newest first: the newest may end next and leave a child."""
        blank, self._blank, self._groups, seen = self._blank, set(), {}, set[str]()
        for _ in range(ROUNDS):  # a missed process may have left a child, which the next round finds
            self.missed = False
            names = [name for name in os.listdir("/proc") if name.isdigit() and name not in seen]  # noqa: PTH208 - pathlib is slow to import
            for name in reversed(names):
                seen.add(name)
                try:
                    if self._found(name):
                        yield int(name)
                except OSError:  # the process has ended
                    self.missed = True
            if not self.missed:
                break
        self.missed = self.missed or not self._blank <= blank

    def _found(self, name: str) -> bool:
        """Return whether this process is the job's. Raise OSError if it has ended."""
        if os.stat(f"/proc/{name}").st_uid != os.geteuid():  # noqa: PTH116
            return False
        if (thread := _living(name, self._quiet)) is None:
            return False
        pid = int(name)
        group = os.getpgid(pid)
        belongs = pid not in self._keep and self._belongs(pid, thread)
        self._groups[group] = belongs and self._groups.get(group, True)
        return belongs

    def _belongs(self, pid: int, thread: str) -> bool:
        # An unreadable environment is empty. The cgroup still names the job.
        text = _read(f"{thread}/environ")
        environ = text.split(b"\0")
        if _SPARED in environ:
            return False
        if not text:
            self._blank.add(pid)
        # A job that the program submitted inherits SLURM_PLUGIN_DIRECTORY, but has another SLURM_JOB_ID.
        ids = [word for word in environ if word.startswith(_ID)] or [self._id] * (self._told in environ)
        return self._id in ids or is_in(_read(f"{thread}/cgroup"), self._steps)


def parent(pid: int) -> int:
    """Return the pid of a process's parent; 0 if the process has ended."""
    fields, _ = stat(pid)
    return int(fields[1]) if fields else 0


def has_other_job(job: str) -> bool:
    """Return whether a process of this user on this node belongs to another job, or does not say to which."""
    for pid in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208
        try:
            if os.stat(f"/proc/{pid}").st_uid != os.geteuid():  # noqa: PTH116
                continue
            with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123
                words = file.read().split(b"\0")
        except PermissionError:
            return True
        except OSError:  # it has ended
            continue
        if any(word.startswith(_ID) and word != _ID + job.encode() for word in words):
            return True
    return False


def steps_of(cgroup: bytes) -> set[bytes]:
    """Return the prefixes, up to the step, that /proc/PID/cgroup has for every process of the job.

    `cgroup` is this text of one process. A prefix is `…/slurm/uid_1000/job_7/step_` in version 1 and
    `…/slurmstepd.scope/job_7/step_` in version 2. From 26.05 on the job's SLUID replaces `job_7`. Without a cgroup
    plugin there are no prefixes.
    """
    parts = (line.partition(_STEP) for line in cgroup.splitlines())
    return {head + step for head, step, _ in parts if step}


def is_in(cgroup: bytes, steps: Collection[bytes]) -> bool:
    """Return whether a process is in one of these steps. Ignore the step `extern`, for users who log in by ssh."""
    lines = cgroup.splitlines()
    return _EXTERN not in cgroup and any(line.startswith(step) for line in lines for step in steps)


def _living(pid: str, quiet: Collection[bytes] = ()) -> str | None:
    """Return the /proc directory of a living thread of a process; None for a zombie.

    The first thread may be a zombie while another thread still hangs in a write. `quiet`: other states to treat as
    ended.
    """
    if not _has_state(process := f"/proc/{pid}", (*ENDED, *quiet)):
        return process
    threads = (f"{process}/task/{thread}" for thread in os.listdir(f"{process}/task"))  # noqa: PTH208
    return next((thread for thread in threads if not _has_state(thread, (*ENDED, *quiet))), None)


def _has_state(task: str, states: Collection[bytes]) -> bool:
    return any(state in states for state in _read(f"{task}/stat").rpartition(b")")[2].split()[:1])


def _read(path: str) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except PermissionError:  # set-uid, or not dumpable
        return b""
    with files.Opened(fd):
        parts = []
        while part := os.read(fd, _CHUNK):
            parts.append(part)
        return b"".join(parts)


def request_save(job_id: int, directory: str, keep: Collection[int], number: int, *, wait_s: float = 0.0) -> int:
    """Send a signal of SIGNALS to the job's processes here that expect it. Return how many received it.

    The signal would kill any other process, such as a shell or torchrun, and the program with it. Wait up to `wait_s`
    for the first one that is no shell, while the caller's parent lives: a program handles it after its imports.
    """
    parent, end = os.getppid(), time.monotonic() + wait_s
    told, program = set[int](), False
    while True:
        for pid in of_job(job_id, directory, keep):
            with suppress(OSError):  # the process has ended
                if pid not in told and expects(pid, number):
                    os.kill(pid, number)
                    told.add(pid)
                    with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
                        program = program or file.read().strip() not in _SHELLS
        if program or time.monotonic() >= end or os.getppid() != parent:
            return len(told)
        time.sleep(SAVE_AGAIN_S)


def expects(pid: int, number: int) -> bool:
    """Return whether a process handles a signal, or blocks it in its first thread while another thread waits for it.

    Return False for a launcher. Raise OSError if the process has ended.
    """
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:  # noqa: PTH123
        fields = dict(line.partition(":")[::2] for line in file)
    if fields.get("Name", "").strip() in _LAUNCHERS:
        return False
    masks = (int(fields.get(name, "0"), 16) for name in ("SigCgt", "SigBlk"))
    return any(mask >> (number - 1) & 1 for mask in masks)


def dump_stacks(job_id: int, directory: str, keep: Collection[int]) -> None:
    """Print py-spy's report on the job's Python processes on this node. Print one line if py-spy is not installed."""
    node = os.environ.get("SLURMD_NODENAME", "")
    pids = sorted(pid for pid in of_job(job_id, directory, keep) if _is_python(pid))[:MOST]
    tool = shutil.which("py-spy")
    if tool is None:
        _say(node, f"py-spy is not installed: no stacks of {len(pids)} Python processes")
        return
    for pid in pids:
        try:
            argv = [tool, "dump", "--nonblocking", "--pid", str(pid)]
            done = subprocess.run(argv, capture_output=True, timeout=DEADLINE_S, check=False)
            text = done.stdout or done.stderr
        except (OSError, subprocess.TimeoutExpired) as error:
            text = str(error).encode()
        for line in text[:MOST_BYTES].decode(errors="replace").splitlines():
            _say(node, line)


def _say(node: str, line: str) -> None:
    log.say(f"{node} stack: {line}")


def _is_python(pid: int) -> bool:
    with suppress(OSError):
        return os.path.basename(os.readlink(f"/proc/{pid}/exe")).startswith("python")  # noqa: PTH115, PTH119
    return False
