"""Remove leftovers of jobs from a node: files and processes of their users, and directories of runs without an epilog.

After a user's last job on the node, the epilog removes the user's files from the site's `clean` directories (/dev/shm),
except those that the user's processes use: a login or a service outside Slurm may be on the node.
One child process finds the files and another removes them, each under a deadline (slurm_plugin.node.child_work), so
that a hung file system does not block the epilog. The epilog queries Slurm only if there are files to remove.

Where Slurm has no cgroups, a job can leave processes on the node. The prolog ends those on the GPUs of its job.

A run has no epilog if slurmd or the node died. The periodic check removes the directory of such a run.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from errno import EMFILE, EPERM

from prechecks import files
from prechecks.measure import proc
from slurm_plugin.node import child_work, removal
from slurm_plugin.records import node_directory, syslog

TYPE_CHECKING = False  # as in prechecks: `typing` costs a hook 3 ms
if TYPE_CHECKING:
    from typing import Any

    from slurm_plugin.slurm import Job, Slurm

LOOK_S, REMOVE_S = 2.0, 10.0
END_S = 2.0  # from SIGKILL to the end of a process that the kernel can end
OLD_S = 3600.0  # minimum age of a run's directory before a query to Slurm, and minimum time between two queries
# Lower user ids belong to root and system accounts (login.defs: SYS_UID_MAX). Their files are never removed.
FIRST_USER = 1000
# CLOCK_REALTIME_COARSE of time.h: the clock for the times of files. CLOCK_REALTIME is up to 10 ms ahead of it.
STAMPS = 5
MOST_IN_USE = 1 << 18  # most files in use by the processes of one user


def after_job(site: Mapping[str, Any], job_id: int, environ: Mapping[str, str], door: Callable[[], Slurm]) -> None:
    """Remove the leftover files of a job's user, unless another job of that user may be on the node.

    Remove only files that are older than the query to Slurm: a job that starts after the answer keeps its files.
    """
    uid, node = int(environ["SLURM_JOB_UID"]), environ["SLURMD_NODENAME"]
    if not site["clean"] or is_spared(uid, site["spool_directory"]):
        return
    state = site["prechecks"]["state"]
    found, why = child_work.run(state, f"clean {site['clean']}", lambda: _find(site["clean"], uid), LOOK_S)
    if found is None:
        syslog.syslog(syslog.LOG_WARNING, f"not cleaned: {', '.join(site['clean'])}: {why}")
        return
    for problem in found["problems"]:
        syslog.syslog(syslog.LOG_WARNING, f"not cleaned: {problem}")
    if not found["paths"]:
        return
    before = time.clock_gettime_ns(STAMPS)
    if not has_no_other_job(uid, job_id, node, door):
        return
    where = ", ".join(found["paths"])
    removed, why = child_work.run(
        state, f"clean {found['paths']} of uid {uid}", lambda: _remove(found["paths"], uid, before), REMOVE_S
    )
    if removed is None:
        syslog.syslog(syslog.LOG_WARNING, f"not all files of uid {uid} in {where} are removed: {why}")
    elif removed:
        syslog.syslog(f"removed {removed} files and directories that uid {uid} left in {where}")


def is_spared(uid: int, spool_directory: str) -> bool:
    """Return whether to keep all files of this user: a system account, or SlurmUser on a controller."""
    if uid < FIRST_USER:
        return True
    try:
        return os.stat(spool_directory).st_uid == uid  # noqa: PTH116 - pathlib costs a hook 5 ms
    except OSError:  # this node is not a controller
        return False


def has_no_other_job(uid: int, job_id: int, node: str, door: Callable[[], Slurm]) -> bool:
    """Return whether the user has no other job on the node; False if Slurm does not answer.

    If two jobs end together, each epilog sees the other job as COMPLETING. Ignore COMPLETING jobs if the user has no
    process here: the processes of these jobs have ended, too.
    """
    states = _jobs_of(uid, node, door, "files")
    if states is None:
        return False
    if states.pop(job_id, None) is None:  # wrong answer: a job is COMPLETING while its epilog runs
        syslog.syslog(syslog.LOG_WARNING, f"kept the files of uid {uid}: Slurm does not name job {job_id} on {node}")
        return False
    others = _on_the_node(states)
    return not others or (others == {"COMPLETING"} and uid not in users_of_processes())


def end_processes(
    site: Mapping[str, Any], pids: Sequence[int], job_id: int, node: str, door: Callable[[], Slurm]
) -> bool | None:
    """End those of these processes that ended jobs left here. Return whether there were any.

    Return None if one may belong to a job: none of Slurm's cgroups names its job, and its user has another job on the
    node than `job_id`, or Slurm does not answer. This ends none of them.
    """
    state = site["prechecks"]["state"]
    users_from = site["prechecks"].get("processes", {}).get("users_from", FIRST_USER)
    handles: dict[int, int] = {}
    for pid in pids:
        with suppress(OSError):  # it has ended
            handles[pid] = os.pidfd_open(pid)  # before the look: the number may soon be another process's
    try:
        look = child_work.run(state, f"processes {pids}", lambda: _left_by_jobs(users_from), LOOK_S)
        left = [each for each in look[0] or () if each[0] in handles]
        if any(_has_job(uid, job_id, node, door) for uid in sorted({uid for _, uid, job in left if not job})):
            return None
        for pid, uid, job in left:
            signal.pidfd_send_signal(handles[pid], signal.SIGKILL)
            syslog.syslog(f"ended process {pid} of uid {uid}: it was left{f' by job {job}' if job else ''} on a GPU")
        _wait_for([handles[pid] for pid, _, _ in left])
        return bool(left)
    finally:
        for fd in handles.values():
            os.close(fd)


def _left_by_jobs(users_from: int) -> list[tuple[int, int, str]]:
    """Return pid, user and job of each process that an ended job left here. Without cgroups the job is unknown."""
    from prechecks.checks.processes import current  # noqa: PLC0415 - most prologs end nothing

    return [(each.pid, each.uid, each.job) for each in current(users_from)]


def _has_job(uid: int, job_id: int, node: str, door: Callable[[], Slurm]) -> bool:
    """Return whether a user has another job than `job_id` on the node; True if Slurm does not answer."""
    states = _jobs_of(uid, node, door, "processes")
    if states is None:
        return True
    states.pop(job_id, None)
    return bool(_on_the_node(states))


def _jobs_of(uid: int, node: str, door: Callable[[], Slurm], what: str) -> dict[int, str] | None:
    """Return id -> state of a user's jobs on the node; None if it does not answer. The log says that `what` is kept."""
    from slurm_plugin.errors import SlurmPluginError  # noqa: PLC0415 - most epilogs ask nothing

    try:
        return dict(door().jobs_of(uid, node))
    except SlurmPluginError as error:
        syslog.syslog(syslog.LOG_WARNING, f"kept the {what} of uid {uid}: {error.one_line}")
        return None


def _on_the_node(states: Mapping[int, str]) -> set[str]:
    """Return the states of the jobs that may have processes."""
    from slurm_plugin.slurm import ENDED  # noqa: PLC0415 - as above

    return set(states.values()) - ENDED - {"PENDING"}


def _wait_for(handles: Sequence[int]) -> None:
    """Wait until these processes have ended, at most END_S."""
    from select import select  # noqa: PLC0415 - as above

    end, running = time.monotonic() + END_S, list(handles)
    while running and (left_s := end - time.monotonic()) > 0:
        ended = select(running, (), (), left_s)[0]
        running = [fd for fd in running if fd not in ended]


def users_of_processes() -> set[int]:
    """Return the user ids of all processes."""
    return set(proc.owners().values())


def in_use(uid: int) -> frozenset[tuple[int, int]]:
    """Return device and inode of the files and directories that processes of this user have open, mapped or as cwd.

    Raise OSError if /proc does not say, and if there are more than MOST_IN_USE.
    """
    found = set()
    for pid in (pid for pid, owner in proc.owners().items() if owner == uid):
        for path in _used(pid):
            try:
                each = os.stat(path)  # noqa: PTH116 - pathlib costs a hook 5 ms
            except OSError as error:
                if error.errno == EPERM:  # map_files of a root without CAP_CHECKPOINT_RESTORE
                    raise
                continue  # closed meanwhile, or in a FUSE file system that refuses root
            found.add((each.st_dev, each.st_ino))
            if len(found) > MOST_IN_USE:
                raise OSError(EMFILE, f"its processes use more than {MOST_IN_USE} files")
    return frozenset(found)


def _used(pid: str) -> Iterator[str]:
    """Yield the links in /proc to the files that a process uses; those found so far if the process ends."""
    yield f"/proc/{pid}/cwd"
    with suppress(FileNotFoundError, ProcessLookupError):
        for folder in (f"/proc/{pid}/fd", f"/proc/{pid}/map_files"):
            for name in os.listdir(folder):  # noqa: PTH208 - as above
                yield f"{folder}/{name}"


def _bound(paths: list[str]) -> frozenset[str]:
    """Return the paths in these directories at which processes have bound sockets (proc_net(5), unix)."""
    with open("/proc/net/unix", encoding="utf-8", errors="surrogateescape") as file:  # noqa: PTH123
        names = (line.rstrip("\n").split(maxsplit=7)[7:] for line in file)
        return frozenset(name for name, *_ in filter(None, names) if name.startswith(tuple(f"{p}/" for p in paths)))


def _find(paths: list[str], uid: int) -> dict[str, list[str]]:
    """Return the directories with files of the user, and error messages. Ignore a missing directory."""
    found: dict[str, list[str]] = {"paths": [], "problems": []}
    for path in paths:
        try:
            with files.Opened(node_directory.open_shared(path)) as fd:
                if any(owned.st_uid == uid for _, owned in removal.entries(fd)):
                    found["paths"].append(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            found["problems"].append(f"{path} {error.strerror}")
    return found


def _remove(paths: list[str], uid: int, before: int) -> int:
    """Remove the user's files that no process uses from these directories. Return the number of files removed."""
    removed, used, bound = 0, in_use(uid), _bound(paths)
    for path in paths:
        with files.Opened(node_directory.open_shared(path)) as fd:
            removed += removal.remove(fd, removal.Leftovers(uid, os.fstat(fd).st_dev, before, used, bound))
    return removed


def sweep_runs(site: Mapping[str, Any], node: str, door: Callable[[], Slurm], *, now: float | None = None) -> list[str]:
    """Remove the directories of runs that have ended on this node. Return their names, also if a removal failed.

    Keep a directory whose user has a process here. Query Slurm once about the others; without an answer keep all.
    `now`: seconds since the epoch.
    """
    run_directory, now = site["run_directory"], time.time() if now is None else now
    old = _old(run_directory, now - OLD_S)
    if not old:
        return []
    from slurm_plugin.errors import SlurmPluginError  # noqa: PLC0415 - most checks ask nothing

    try:
        jobs = door().jobs(sorted({_job_id(name) for name in old}))
    except SlurmPluginError as error:
        syslog.syslog(syslog.LOG_WARNING, f"kept old directories of runs: {error.one_line}")
        return []
    over = [name for name in old if is_over(jobs.get(_job_id(name)), node)]
    for name in old:
        if name in over:
            gone = node_directory.remove(run_directory, name)
            done = "removed" if gone else "could not remove"
            syslog.syslog(f"{done} {run_directory}/jobs/{name}: that run is over, and it had no epilog")
        else:
            with suppress(FileNotFoundError):
                os.utime(f"{run_directory}/jobs/{name}", (now, now), follow_symlinks=False)
    return over


def is_over(job: Job | None, node: str) -> bool:
    """Return whether a job is over for this node: Slurm has forgotten it, it has ended, or it runs elsewhere.

    A pending job is not over: it may start here at any moment.
    """
    from hostfiles import nodelist  # noqa: PLC0415 - as above
    from slurm_plugin.slurm import ENDED  # noqa: PLC0415

    return job is None or job.state in ENDED or bool(job.nodes and node not in nodelist.expand(job.nodes))


def _old(run_directory: str, before: float) -> list[str]:
    """Return the directories that have not changed since `before` and whose users have no process here."""
    jobs = f"{run_directory}/jobs"
    found = [
        name
        for name in node_directory.all_runs(run_directory)
        if (each := _stat(f"{jobs}/{name}")) and each.st_mtime < before
    ]
    busy = users_of_processes() if found else set()
    return [name for name in found if node_directory.owner(run_directory, name) not in busy]


def _stat(path: str) -> os.stat_result | None:
    """Return the status of a directory; None if an epilog has removed it meanwhile."""
    try:
        return os.stat(path, follow_symlinks=False)  # noqa: PTH116 - pathlib costs a hook 5 ms
    except FileNotFoundError:
        return None


def _job_id(name: str) -> int:
    return int(name.partition(".")[0])
