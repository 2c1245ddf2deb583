"""The controller's worker: one process that serves the spool and ends when it is empty.

It is left behind by EpilogSlurmctld, whose process group slurmctld kills: it has a session of its own before the hook
ends. A lock keeps it single; it looks once more after letting the lock go, so an entry written meanwhile is not left.
"""

import fcntl
import os
import syslog
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hostfiles import HostfileError, nodelist
from slurm_plugin import after_run, grant
from slurm_plugin.after_run import WAITING, Amend, Cancel, Count, Drop, Ended, Start, Step, Unhold, Wait
from slurm_plugin.hooks import spool
from slurm_plugin.queueing import Policy
from slurm_plugin.slurm import Job, Slurm, SlurmError, connect, releases
from slurm_plugin.slurm.releases import Release

# How often Slurm is asked: quickly for a few jobs, above all after a change, as most of them complete within a moment;
# once a second however many there are; and seldom where nothing has happened for a while (a job stays COMPLETING for
# as long as a node of its does not answer).
FEW, FEW_EVERY_S, MANY_EVERY_S = 8, 0.25, 1.0
FRESH_S, FRESH_EVERY_S = 1.0, 0.1
REST = 3.0  # times what a look took: squeue has slurmctld send all of its jobs, and a busy one is left alone longer
SOON_S = 0.001
QUIET_AFTER_S, QUIET_EVERY_S = 15.0, 5.0


def wake(directory: Path, site: Mapping[str, Any]) -> None:
    """Leave a worker behind and return once it has left this process group (or found another one at work)."""
    ready, tell = os.pipe()
    if os.fork():
        os.close(tell)
        os.read(ready, 1)
        os.close(ready)
        os.wait()
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    try:
        _detach()
        os.close(tell)
        syslog.openlog("slurm_plugin")
        serve(directory, connect(site["slurm_bin"], deadline_s=10.0), Policy.of(site["recovery"]))
    except BaseException as error:  # noqa: BLE001 - the last one who can say it
        syslog.syslog(syslog.LOG_ERR, f"the worker failed: {error!r}; the next job that ends starts another")
    finally:
        os._exit(0)


def _detach() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.chdir("/")


def serve(
    directory: Path,
    door: Slurm,
    policy: Policy = after_run.NO_POLICY,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    wall: Callable[[], float] = time.time,
) -> None:
    """Deal with every entry, then end; do nothing where another worker is at it."""
    while any(directory.glob("[0-9]*.json")):
        lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _empty(directory, door, policy, clock=clock, sleep=sleep, wall=wall)
        except BlockingIOError:
            return
        finally:
            os.close(lock)


def _empty(
    directory: Path,
    door: Slurm,
    policy: Policy,
    *,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
    wall: Callable[[], float],
) -> None:
    pending: dict[int, tuple[float, float]] = {}  # job -> when it was first seen pending, how long it settles from then
    before: tuple[list[Ended], int] = ([], 0)  # what waited, and how many of it were pending
    changed = clock()
    named: set[int] = set()
    release = _release(door)
    while waiting := list(spool.entries(directory)):
        began = clock()
        with _tried_again():
            jobs = door.jobs([ended.job_id for ended in waiting])
            wants = {ended: after_run.wants(jobs.get(ended.job_id)) for ended in waiting}
            asking = [ended for ended in waiting if wants[ended][0]]
            names = sorted({name for each in asking for name in after_run.nodes_of(each, jobs.get(each.job_id))})
            nodes = door.nodes(names) if names else {}
            # Each is asked for once in any case: the door then knows by which name a task of an array is itself.
            queues = door.queueing([each.job_id for each in waiting if wants[each][1] or each.job_id not in named])
            named |= queues.keys()
            latest = {ended.job_id: ended for ended in waiting}
            for ended in waiting:
                if ended is not latest[ended.job_id]:  # a run before: its nodes say nothing about the last one
                    spool.remove(directory, ended)
                    pending.pop(ended.job_id, None)  # it was pending before the last one began
                    continue
                job = jobs.get(ended.job_id)
                if job and job.state in WAITING:
                    pending.setdefault(job.id, (clock(), release.settles_in(wall())))
                since, settle_s = pending.get(ended.job_id, (clock(), 0.0))
                with _tried_again():  # each by itself: a job that Slurm refuses to change holds up no other
                    step = after_run.step(
                        ended,
                        job,
                        nodes,
                        nodelist.expand(job.excluded) if job and job.excluded else (),
                        clock() - since,
                        settle_s=settle_s,
                        queue=queues.get(ended.job_id) if wants[ended][1] else after_run.NO_BOUNDS,
                        policy=policy,
                        now=datetime.now(UTC),
                    )
                    _apply(step, ended, job, door)
                    if isinstance(step, Drop | Start | Cancel):
                        pending.pop(ended.job_id, None)
                        spool.remove(directory, ended)
        if (waiting, len(pending)) != before:
            before, changed = (waiting, len(pending)), clock()
        settled = [settle_s - (clock() - since) for since, settle_s in pending.values()]
        least_s = REST * (clock() - began)
        _rest(directory, waiting, _pause(len(waiting), clock() - changed, least_s, settled), sleep)


def _release(door: Slurm) -> Release:
    """What is known of this Slurm; where that cannot be told, of the release whose jobs settle for longest."""
    try:
        known = releases.of(door.version())
    except SlurmError:
        known = None
    return known or max(releases.RELEASES, key=lambda release: release.settle_s)


def _pause(waiting: int, quiet_s: float, least_s: float, settled: Iterable[float]) -> float:
    """Seconds until the next look, `least_s` or more but for a job that has settled by then.

    `settled`: in how many seconds each pending job has.
    """
    if quiet_s > QUIET_AFTER_S:
        return QUIET_EVERY_S
    if waiting > FEW:
        return max(MANY_EVERY_S, least_s)
    usual = FEW_EVERY_S if quiet_s > FRESH_S else FRESH_EVERY_S
    return min([max(usual, least_s), *(max(seconds, SOON_S) for seconds in settled if seconds > 0)])


def _rest(directory: Path, waiting: Sequence[Ended], seconds: float, sleep: Callable[[float], None]) -> None:
    """Sleep until the next look; a long pause ends where a run has ended meanwhile, which must not wait for it."""
    while seconds > MANY_EVERY_S:
        sleep(MANY_EVERY_S)
        seconds -= MANY_EVERY_S
        if list(spool.entries(directory)) != list(waiting):
            return
    sleep(seconds)


@contextmanager
def _tried_again() -> Iterator[None]:
    try:
        yield
    except (SlurmError, HostfileError) as error:
        syslog.syslog(syslog.LOG_WARNING, f"the worker tries again: {error}")


def _apply(step: Step, ended: Ended, job: Job | None, door: Slurm) -> None:
    match step:
        case Wait():
            return
        case Drop(why):
            syslog.syslog(f"job {ended.job_id}: {why}")
        case Amend(fresh, fields) if job:
            door.update_job(job.id, AdminComment=grant.written(job.admin_comment, fresh), **fields)
            syslog.syslog(f"job {job.id}: what its last restart had set is taken back: {', '.join(fields)}")
        case Count(fresh, excluded, fields) if job:
            changes = {"AdminComment": grant.written(job.admin_comment, fresh), **fields}
            if (excluded or job.excluded) and job.state in WAITING:  # Slurm changes the list of a pending job only
                changes["ExcNodeList"] = nodelist.fold(excluded) if excluded else ""
            door.update_job(job.id, **changes)
            syslog.syslog(f"job {job.id}: restart {fresh.used} of {fresh.granted}: {fresh.last}")
        case Unhold() if job:
            door.release(job.id)
            syslog.syslog(f"job {job.id}: released: {job.reason}")
        case Start(fields) if job:
            door.update_job(job.id, StartTime="now", **fields)
            syslog.syslog(f"job {job.id}: may start")
        case Cancel(fresh) if job:
            door.update_job(job.id, AdminComment=grant.written(job.admin_comment, fresh))
            door.cancel(job.id)
            syslog.syslog(f"job {job.id}: cancelled: {fresh.last}")
