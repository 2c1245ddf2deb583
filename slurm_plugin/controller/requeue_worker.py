"""The controller's worker: one process that serves the spool and ends when it is empty.

The spool contains one small file for each ended run whose job may go on. The worker removes the file when it has
handled the run. SlurmUser owns the directory. A file `<job id>.<told>.json` (see `Ended`) is complete when it appears:
a reader never sees half a file, and a restart of slurmctld loses none. A lock ensures that only one worker runs. After
a worker has released the lock, it reads the spool once more, so it misses no entry.
"""

import errno
import fcntl
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from hostfiles import HostfileError, nodelist
from prechecks import files
from slurm_plugin.controller import missed_runs, requeue_policy
from slurm_plugin.controller.queue_limits import Policy
from slurm_plugin.controller.requeue_policy import Amend, Cancel, Count, Drop, Ended, Start, Step, Unhold
from slurm_plugin.errors import MissingError, SlurmPluginError
from slurm_plugin.records import grant, site_settings, syslog
from slurm_plugin.slurm import WAITING, Job, Slurm, SlurmAwayError, SlurmError, releases
from slurm_plugin.slurm.releases import Release

# How often the worker asks Slurm. For a few jobs it asks often, and most often after a change: most jobs complete
# quickly. For many jobs it asks at most once a second. It asks seldom if nothing has changed for a while: a job stays
# COMPLETING for as long as one of its nodes does not answer.
FEW, FEW_EVERY_S, MANY_EVERY_S = 8, 0.25, 1.0
FRESH_S, FRESH_EVERY_S = 1.0, 0.1
REST = 3.0  # least pause after a round, in multiples of its duration: each round reads all jobs
SOON_S = 0.001
QUIET_AFTER_S, QUIET_EVERY_S = 15.0, 5.0
MOST_READS = 12  # attempts to read an unreadable spool, QUIET_EVERY_S apart
MISSED_EVERY_S = 60.0  # interval between requests for all jobs; the worker also asks before it ends
# How long Slurm's commands may be missing, as in an upgrade. Then this worker ends. The next one rereads the settings.
MISSING_S = 600.0


class Clock(Protocol):
    """A source of time: the module `time`, or a fake clock in tests."""

    def monotonic(self) -> float:
        """Return seconds that never go back."""

    def time(self) -> float:
        """Return seconds since the epoch."""

    def sleep(self, seconds: float, /) -> None:
        """Sleep for `seconds`."""


class GivenUpError(SlurmPluginError):
    """This worker cannot go on. The next worker may succeed."""


def serve(
    directory: Path,
    door: Slurm,
    policy: Policy = requeue_policy.NO_POLICY,
    *,
    look: bool = False,
    clock: Clock = time,
) -> None:
    """Handle every entry and every end without an entry, then return. Return immediately if another worker runs.

    `look`: search for ends without an entry even if the spool is empty.
    """
    while look or any(directory.glob("[0-9]*.json")):
        look = False
        lock = _lock(directory)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _serve_entries(directory, door, policy, clock)
        except BlockingIOError:
            return
        finally:
            os.close(lock)


def _lock(directory: Path) -> int:
    """Open the lock file, or the directory if the file cannot be created on a full file system."""
    try:
        return os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _serve_entries(directory: Path, door: Slurm, policy: Policy, clock: Clock) -> None:
    pending: dict[int, tuple[float, float]] = {}  # job -> first seen pending at, seconds until it may start
    before: tuple[list[Ended], int] = ([], 0)  # at the last change: the ends, the number of pending jobs
    changed = complete = clock.monotonic()
    named: set[int] = set()
    release = _release(door)
    missed: dict[int, Ended] = {}  # ends without an entry
    done: set[tuple[int, int]] = set()  # handled runs, by job and restart count
    last_query = clock.monotonic()
    while True:
        seen, waiting = _names(directory), _waiting(directory, clock)
        if clock.monotonic() - last_query > MISSED_EVERY_S or not (waiting or missed):
            last_query = clock.monotonic()
            missed |= _unspooled_ends(door, done)
        waiting += [missed[each] for each in missed.keys() - {ended.job_id for ended in waiting}]
        if not waiting:
            return
        began = clock.monotonic()
        with _errors_logged():
            jobs = _jobs(door, [ended.job_id for ended in waiting], clock.monotonic() - complete)
            complete = clock.monotonic()
            needs = {ended: requeue_policy.needs(jobs.get(ended.job_id)) for ended in waiting}
            asking = [ended for ended in waiting if needs[ended][0]]
            names = sorted({name for each in asking for name in _nodes_of(each, jobs.get(each.job_id))})
            every = any(missed_runs.has_gap(jobs.get(each.job_id)) for each in asking)
            nodes = door.nodes([] if every else names) if names else {}
            # Ask for each job at least once: `door` then knows the names of array tasks.
            queues = door.queueing([each.job_id for each in waiting if needs[each][1] or each.job_id not in named])
            named |= queues.keys()
            runs: dict[int, list[Ended]] = {}
            for ended in waiting:
                runs.setdefault(ended.job_id, []).append(ended)
            for ended, *later in runs.values():
                job = jobs.get(ended.job_id)
                if job and job.state in WAITING:
                    pending.setdefault(job.id, (clock.monotonic(), release.settles_in(clock.time())))
                since, settle_s = pending.get(ended.job_id, (clock.monotonic(), 0.0))
                with _errors_logged():  # for each job: a job that Slurm refuses to change does not delay the others
                    # Slurm refuses a list with a name that slurm.conf no longer has.
                    excluded = [name for name in _left_out(job) if name in nodes] if needs[ended][0] else []
                    step = requeue_policy.step(
                        *missed_runs.earliest([ended, *later], job, nodes, excluded),
                        nodes,
                        excluded,
                        clock.monotonic() - since,
                        settle_s=settle_s,
                        queue=queues.get(ended.job_id) if needs[ended][1] else requeue_policy.NO_BOUNDS,
                        policy=policy,
                        now=datetime.now(UTC),
                        again=bool(later),
                    )
                    _apply(step, ended, job, door)
                    if isinstance(step, Drop | Start | Cancel):
                        pending.pop(ended.job_id, None)  # with later runs, the job was pending before the last one
                        missed.pop(ended.job_id, None)
                        if not later:
                            done.add((ended.job_id, job.restarts if job else 0))
                        remove(directory, ended)
        if (waiting, len(pending)) != before:
            before, changed = (waiting, len(pending)), clock.monotonic()
        settled = [settle_s - (clock.monotonic() - since) for since, settle_s in pending.values()]
        least_s = REST * (clock.monotonic() - began)
        _rest(directory, seen, _pause(len(waiting), clock.monotonic() - changed, least_s, settled), clock)


def _waiting(directory: Path, clock: Clock) -> list[Ended]:
    """Return every entry. If there are entries but none is readable, try MOST_READS times.

    Raise GivenUpError if the last attempt fails.
    """
    for _ in range(MOST_READS):
        with _errors_logged():
            found = list(entries(directory))
            if found or not any(directory.glob("[0-9]*.json")):
                return found
        clock.sleep(QUIET_EVERY_S)
    raise GivenUpError(f"{directory} has entries that cannot be read\n  see: dmesg; ulimit -n; ls -l {directory}")


def _unspooled_ends(door: Slurm, done: Set[tuple[int, int]]) -> dict[int, Ended]:
    """Return the ends without an entry, by job id. Leave out `done`, the pairs of job id and restart count."""
    with _errors_logged():
        found = missed_runs.unspooled_ends(door.jobs().values(), lambda: door.nodes([]))
        return {each.job_id: each for each in found if (each.job_id, each.told) not in done}
    return {}


def _jobs(door: Slurm, job_ids: Sequence[int], missing_s: float) -> Mapping[int, Job]:
    """Return these jobs. Raise GivenUpError if Slurm's commands have been missing for more than MISSING_S."""
    try:
        return door.jobs(job_ids)
    except MissingError as error:
        if missing_s > MISSING_S:
            raise GivenUpError(error.one_line) from error
        raise


def _left_out(job: Job | None) -> list[str]:
    """Return the nodes that a job excludes. Raise HostfileError if the list is unreadable."""
    return nodelist.expand(job.excluded) if job and job.excluded else []


def _nodes_of(ended: Ended, job: Job | None) -> list[str]:
    """Return the nodes to ask for. Ignore an unreadable list here: later only the step of this job fails."""
    return [*requeue_policy.nodes_of(ended, job), *nodelist.names(job.excluded if job else "")]


def _release(door: Slurm) -> Release:
    """Return this release of Slurm. If it is unknown, return the release with the longest `settle_s`."""
    try:
        known = releases.of(door.version())
    except SlurmPluginError:
        known = None
    return known or max(releases.RELEASES, key=lambda release: release.settle_s)


def _pause(waiting: int, quiet_s: float, least_s: float, settled: Iterable[float]) -> float:
    """Return the seconds until the next round.

    `waiting`: the number of ends. `quiet_s`: time since the last change. `least_s`: the least pause, unless `quiet_s`
    is long or a job may start sooner. `settled`: for each pending job, the seconds until it may start.
    """
    if quiet_s > QUIET_AFTER_S:
        return QUIET_EVERY_S
    if waiting > FEW:
        return max(MANY_EVERY_S, least_s)
    usual = FEW_EVERY_S if quiet_s > FRESH_S else FRESH_EVERY_S
    return min([max(usual, least_s), *(max(seconds, SOON_S) for seconds in settled if seconds > 0)])


def _rest(directory: Path, seen: Set[str], seconds: float, clock: Clock) -> None:
    """Sleep until the next round. End a long pause early if the entries have changed: a run may have ended."""
    while seconds > MANY_EVERY_S:
        clock.sleep(MANY_EVERY_S)
        seconds -= MANY_EVERY_S
        if _names(directory) != seen:
            return
    clock.sleep(seconds)


def _names(directory: Path) -> set[str]:
    """Return the names of the entries; empty if they cannot be listed now."""
    with suppress(OSError):
        return {path.name for path in directory.glob("[0-9]*.json")}
    return set()


@contextmanager
def _errors_logged() -> Iterator[None]:
    """Log every error but GivenUpError. Bad data, a missing command or too few descriptors must not end the worker."""
    try:
        yield
    except GivenUpError:
        raise
    except (SlurmPluginError, HostfileError) as error:
        syslog.syslog(syslog.LOG_WARNING, f"the worker tries again: {error}")
    except Exception as error:  # noqa: BLE001 - the other jobs go on
        syslog.syslog(syslog.LOG_ERR, f"the worker tries again: {error!r}")


def _apply(step: Step, ended: Ended, job: Job | None, door: Slurm) -> None:
    """Apply a step. If it ends the reservation of the run's nodes, delete that first; for a Start, delete it last."""
    over = ended.kept and requeue_policy.ends_reservation(step)
    if over and not isinstance(step, Start):
        unreserve(door, ended)
    _change(step, ended, job, door)
    if over and isinstance(step, Start):  # now the job may use the nodes: Slurm's own order decides
        unreserve(door, ended)


def unreserve(door: Slurm, ended: Ended) -> None:
    """Delete the reservation of a run's nodes. Raise SlurmAwayError. Log other errors: Slurm may have ended it."""
    try:
        door.unreserve(f"{site_settings.RESERVATION_PREFIX}{ended.job_id}_{ended.told}")
    except SlurmAwayError:
        raise
    except SlurmError as error:
        syslog.syslog(f"job {ended.job_id}: {error.one_line}")


def _change(step: Step, ended: Ended, job: Job | None, door: Slurm) -> None:
    match step:  # nothing for Wait
        case Drop(why, fields):
            if fields and job:
                door.update_job(job.id, **fields)
            syslog.syslog(f"job {ended.job_id}: {why}")
        case Amend(fresh, fields) if job:
            door.update_job(job.id, AdminComment=grant.written(job.admin_comment, fresh), **fields)
            syslog.syslog(f"job {job.id}: restored after its last restart: {', '.join(fields)}")
        case Count(fresh, excluded, fields) if job:
            changes = {"AdminComment": grant.written(job.admin_comment, fresh), **fields}
            if (excluded or job.excluded) and job.state in WAITING:  # Slurm changes this list only for a pending job
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


def _file(ended: Ended) -> str:
    return f"{ended.job_id}.{ended.told}.json"


def put(spool: Path, ended: Ended) -> None:
    """Write the entry of an ended run, so that it survives a crash of this machine. Raise OSError."""
    fields = {"job_id": ended.job_id, "told": ended.told, "nodes": ended.nodes} | ({"kept": True} if ended.kept else {})
    files.replace(f"{spool}/{_file(ended)}", json.dumps(fields), durable=True)


def entries(spool: Path) -> Iterator[Ended]:
    """Yield every entry, in the order of job id and `told`. The guard of the hook writes its nodes as a node list.

    Rename a file that is not an entry to `.bad`. Skip a file that cannot be read now (EMFILE, EIO).
    """
    found = []
    for path in spool.glob("[0-9]*.json"):
        try:
            fields = json.loads(path.read_text(encoding="ascii"))
            nodes = tuple(name for each in fields["nodes"] for name in nodelist.expand(str(each)))
            ended = Ended(int(fields["job_id"]), int(fields["told"]), nodes, kept=bool(fields.get("kept")))
            if path.name != _file(ended):
                raise ValueError(f"{path} holds the run of {_file(ended)}")
        except IsADirectoryError:
            _set_aside(path, "a directory")
        except OSError as error:
            if error.errno != errno.ENOENT:  # ENOENT: another process has removed it
                syslog.syslog(syslog.LOG_ERR, f"{path} cannot be read now: {error.strerror}")
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            _set_aside(path, repr(error))
        else:
            found.append(ended)
    yield from sorted(found, key=lambda ended: (ended.job_id, ended.told))


def _set_aside(path: Path, why: str) -> None:
    """Rename a file that is not an entry, so that the worker reads it only once."""
    syslog.syslog(syslog.LOG_ERR, f"{path} is no entry of the spool, it becomes {path.stem}.bad: {why}")
    try:
        path.rename(path.with_suffix(".bad"))
    except OSError as error:
        syslog.syslog(syslog.LOG_ERR, f"{path} cannot be renamed: {error.strerror}")


def remove(spool: Path, ended: Ended) -> None:
    """Remove the entry of a run."""
    (spool / _file(ended)).unlink(missing_ok=True)
