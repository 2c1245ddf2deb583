"""Count restarts and the time to recover, from the worker's requests to Slurm and their answers.

`CountingDoor` takes the place of the worker's back end. It sends no request of its own, except in `watch`.

| what | how it is seen |
|---|---|
| a requeue, and its cause | the worker writes a grant with one more requeue |
| restarts in the same allocation | `again=` in a job's token: user text, so at most what is granted |
| the time to recover | from when the worker first saw the job COMPLETING to its next start, as Slurm shows it |

Only the controller's file has these counts: the supervisor runs as the user. It does not pass on why it ran a program
again in the same allocation.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from prechecks import files, quickjson
from slurm_plugin.controller.requeue_policy import ONE_LOST, OWN_CHECK, SLOW
from slurm_plugin.records import grant as grants
from slurm_plugin.records import metrics, syslog, token
from slurm_plugin.records.grant import WENT_DOWN
from slurm_plugin.slurm import ENDED, WAITING, Job, Slurm

SEEN: Final = "recoveries.json"  # in the spool; no spool entry, whose name begins with a digit
LOCK: Final = "recoveries.lock"
LOCK_WAIT_S: Final = 1.0
MOST_JOBS: Final = 2000  # of each kind in SEEN; the oldest are dropped
# How long to watch for the start of a job that may start. A later start is seen when the next run of any job ends.
WATCH_S, WATCH_EVERY_S = 6.0, 2.0


Seen = dict[str, dict[str, list[float]]]


class CountingDoor:
    """A back end that counts what passes through it. A failure to count is only logged."""

    def __init__(self, door: Slurm, site: Mapping[str, Any]) -> None:
        self._door, self._site = door, site
        self._spool = Path(site["spool_directory"])
        self._known: dict[int, Job] = {}
        self._ends: dict[int, float] = {}  # job -> when it was first seen COMPLETING, seconds since the epoch
        self._started = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._door, name)

    def jobs(self, job_ids: Sequence[int] | None = None) -> Mapping[int, Job]:
        """Return jobs in one request (None: all)."""
        found = self._door.jobs(job_ids)
        self._known = dict(found) if job_ids is None else {**self._known, **found}
        for job in found.values():
            if job.state == "COMPLETING":
                self._ends.setdefault(job.id, time.time())
            elif job.state == "RUNNING":
                self._ends.pop(job.id, None)
        seen = _load(self._spool)
        if _step(seen, found, whole=job_ids is None)[0] != seen:
            self._update(lambda seen: _step(seen, found, whole=job_ids is None))
        return found

    def update_job(self, job_id: int, **fields: str) -> None:
        """Change a job. Count a restart if the job's grant has one more requeue."""
        job = self._known.get(job_id)
        before, fresh = grants.parse(job.admin_comment if job else ""), grants.parse(fields.get("AdminComment", ""))
        self._door.update_job(job_id, **fields)
        self._started |= "StartTime" in fields
        if before and fresh and fresh.requeues > before.requeues:
            end = self._ends.pop(job_id, time.time())
            self._update(lambda seen: _counted(seen, job_id, fresh, end))

    def watch(self) -> None:
        """Wait a moment for jobs that may start."""
        end = time.monotonic() + WATCH_S
        while self._started and _load(self._spool)["since"] and time.monotonic() < end:
            time.sleep(WATCH_EVERY_S)
            self.jobs()

    def _update(self, change: Callable[[Seen], tuple[Seen, list[dict[str, float]]]]) -> None:
        """Apply a change to the stored jobs, and count what it returns."""
        try:
            with files.Locked(files.open_directory(str(self._spool)), LOCK, LOCK_WAIT_S) as directory:
                seen, added = change(_load(self._spool))
                for jobs in seen.values():
                    for old in list(jobs)[:-MOST_JOBS]:
                        del jobs[old]
                files.replace(SEEN, quickjson.dumps(seen), mode=0o600, directory=directory)
        except OSError as error:
            syslog.syslog(syslog.LOG_WARNING, f"a restart is not counted: {error}")
            return
        total: dict[str, float] = {}
        for each in added:
            for name, value in each.items():
                total[name] = total.get(name, 0.0) + value
        if total:
            metrics.add(self._site, metrics.CONTROLLER, total)


def _load(spool: Path) -> Seen:
    """Return the jobs that are followed: `since`: job -> restart count and time of the counted run's end, `again`: job
    -> restarts in place that were counted. Empty if the file cannot be read.
    """
    try:
        found = quickjson.loads((spool / SEEN).read_text(encoding="ascii"))
        return {
            "since": {str(int(job)): [float(run), float(end)] for job, (run, end) in found["since"].items()},
            "again": {str(int(job)): [float(count)] for job, (count,) in found["again"].items()},
        }
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {"since": {}, "again": {}}


def _counted(seen: Seen, job_id: int, grant: grants.Grant, end: float) -> tuple[Seen, list[dict[str, float]]]:
    """Count a requeue, and follow the job until it runs again. `end`: the end of its run."""
    seen["since"].pop(str(job_id), None)
    seen["since"][str(job_id)] = [grant.counted, end]
    return seen, [{metrics.sample(metrics.RESTARTS, kind=metrics.REQUEUE, cause=cause(grant.last)): 1.0}]


def _step(seen: Seen, jobs: Mapping[int, Job], *, whole: bool) -> tuple[Seen, list[dict[str, float]]]:
    """Return what is left to follow after an answer of Slurm, and what to count. `whole`: the answer has all jobs."""
    left: Seen = {kind: dict(those) for kind, those in seen.items()}
    added = []
    for name, (run, since) in seen["since"].items():
        job = jobs.get(int(name))
        if job is None:
            if whole:
                del left["since"][name]
        elif job.restarts != run + 1:  # another requeue, which was not counted
            del left["since"][name]
        elif job.state not in WAITING and job.start_time:
            del left["since"][name]
            took_s = job.start_time.timestamp() - since
            ran = job.state not in ENDED or job.end_time != job.start_time  # else it was cancelled while it waited
            if ran and took_s >= -1:  # times of Slurm are whole seconds
                added.append(metrics.observed(metrics.RECOVERY, max(0.0, took_s)))
    for job in (each for each in jobs.values() if "again=" in each.comment):
        count, before = _in_place(job), left["again"].get(str(job.id), [0.0])[0]
        if count > before and (str(job.id) in left["again"] or len(left["again"]) < MOST_JOBS):
            left["again"][str(job.id)] = [count]
            labels = {"kind": metrics.IN_PLACE, "cause": metrics.UNKNOWN}
            added.append({metrics.sample(metrics.RESTARTS, **labels): count - before})
    if whole:
        left["again"] = {name: count for name, count in left["again"].items() if int(name) in jobs}
    return left, added


def _in_place(job: Job) -> float:
    """Return the restarts of a job in its allocations: what its token says, at most what its grant allows."""
    request, given = token.find(job.comment), grants.parse(job.admin_comment)
    return float(min(request.again, max(0, given.granted - given.requeues))) if request and given else 0.0


def cause(last: str) -> str:
    """Return the cause of a requeue as a label. `last`: why the worker requeued the job (grant.last)."""
    parts = last.split("; ")
    if all(part.endswith((f": {OWN_CHECK}", f": {SLOW}")) for part in parts):
        return metrics.OWN_CHECK
    if any(part == ONE_LOST or part.endswith(f": {WENT_DOWN}") for part in parts):
        return metrics.NODE_DOWN
    return metrics.NODE_CHECK if ": " in last else metrics.PROGRAM
