"""Read what the directories of many jobs tell, in a child process with a deadline: a file server may hang."""

import json
import os
import pwd
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from hostfiles import nodelist
from prechecks.child import Child
from slurm_plugin.records import history, job_directory, token
from slurm_plugin.slurm import ENDED, WAITING, Job, Listed, own_name
from slurm_plugin.views import states
from slurm_plugin.views.jobs import Facts

DEADLINE_S: Final = 2.0
END: Final = b"end"  # the last line of the child's output
NO_USER: Final = -2  # the uid of no file
# How an attempt that is the last one of its job ended it, in Slurm's words. After `again` and `requeue` no other
# attempt has followed.
_ENDS: Final = {"finish": "COMPLETED", "fail": "FAILED", "hold": "FAILED"}


def facts(rows: Sequence[Listed], deadline_s: float = DEADLINE_S) -> tuple[dict[int, Facts], bool]:
    """Return the facts of jobs by id, and whether all could be read in time. Most jobs have none."""
    found: dict[int, Facts] = {}
    ours = [each for each in rows if each.directory.startswith("/") and _may_have_records(each.job)]
    lines, complete = _in_a_child(lambda: _facts(ours), deadline_s) if ours else ([], True)
    for job_id, *values in lines:
        found[job_id] = Facts(*values)
    return found, complete


def past(directories: Iterable[str], since: datetime, known: Iterable[int], cluster: str) -> tuple[list[Listed], bool]:
    """Return this user's jobs whose last attempt ended after `since`, and whether all could be read in time.

    `directories`: the working directories to search. `known`: ids of jobs to leave out. `cluster`: its name.
    """
    wanted, skipped = sorted(set(directories)), {*known}
    lines, complete = _in_a_child(lambda: _past(wanted, since.timestamp(), skipped, cluster), DEADLINE_S)
    return [_listed(*line) for line in lines], complete


def _in_a_child(work: Callable[[], Iterator[Any]], deadline_s: float) -> tuple[list[Any], bool]:
    """Return the values that `work` yields in a child process until the deadline, and whether it came to its end."""

    def run(say: Callable[[bytes], None]) -> bytes:
        for each in work():
            say(json.dumps(each).encode() + b"\n")
        return END + b"\n"

    try:
        child = Child(run)
    except OSError:  # too many processes
        return [], False
    child.collect(time.monotonic() + deadline_s)
    *whole, _cut_off = child.output.split(b"\n")
    return [json.loads(line) for line in whole if line != END], END in whole


def _facts(rows: Iterable[Listed]) -> Iterator[Sequence[Any]]:
    """Yield the id and the facts of each job that has a directory."""
    there: dict[str, set[str]] = {}
    users: dict[str, int] = {}
    for each in rows:
        if each.directory not in there:
            there[each.directory] = set(_names(each.directory))
        if str(each.job.id) in there[each.directory]:
            if each.job.user not in users:
                users[each.job.user] = uid_of(each.job.user)
            directory = Path(each.directory) / job_directory.OURS / str(each.job.id)
            with suppress(OSError):  # removed meanwhile, or not readable
                yield each.job.id, *_of_job(each, directory, users[each.job.user])


def _may_have_records(job: Job) -> bool:
    """Return whether the job may have records. slurmdbd lacks the comment, so an ended job without one may."""
    if token.OPENING in job.comment:
        return job.state not in WAITING or job.restarts > 0
    return job.state in ENDED and not job.comment


def _of_job(each: Listed, directory: Path, owner: int) -> Facts:
    """Read the records of one job. Ignore files of other users than its own."""
    from slurm_plugin.records import progress_file, usage  # noqa: PLC0415 - a list without such jobs needs neither

    has = set(os.listdir(directory)) if directory.stat().st_uid == owner else set()  # noqa: PTH208
    point = progress_file.last(directory / progress_file.FILE, owner) if progress_file.FILE in has else None
    held, used, low, restarts, over_time = False, None, None, 0, False
    if usage.FILE in has:
        samples = usage.recent(directory / usage.FILE, owner)
        newest = max((sample.attempt for sample in samples), default=0)
        used = usage.mean([sample for sample in samples if sample.attempt == newest], worker=0)
        low = usage.low(samples)
    if each.job.state == "RUNNING" and "hold.json" in has:
        from slurm_plugin.supervisor import hold  # noqa: PLC0415 - as above

        held = hold.now(each.job, directory) is not None
    if states.word(each.job) in states.OVER and (each.job.state == "FAILED" or not each.job.comment):
        attempts = job_directory.attempts(directory) or [{}]
        restarts, over_time = _restarts(attempts), history.is_over_time(attempts[-1])
    step, of = (point.step, point.of) if point else (None, None)
    return Facts(held, over_time, restarts, step, of, used, low.text if low else "")


def _restarts(attempts: Sequence[Mapping[str, Any]]) -> int:
    numbers = [number for each in attempts if isinstance(number := each.get("n"), int) and 0 < number < 1 << 31]
    return max(numbers, default=0)


def _past(directories: Iterable[str], since: float, skipped: set[int], cluster: str) -> Iterator[Any]:
    """Yield the values of `_listed` for each job of this user that ended since then."""
    from slurm_plugin.records import log_files  # noqa: PLC0415 - slow, and most lists need none

    for workdir in directories:
        for name in _names(workdir):
            path = Path(workdir) / job_directory.OURS / name
            if not job_directory.is_job(name) or int(name) in skipped:
                continue
            try:
                status = (path / job_directory.ATTEMPTS).lstat()
            except OSError:
                continue
            if status.st_uid == os.geteuid() and status.st_mtime >= since:
                attempts = job_directory.attempts(path, cluster)
                if attempts:
                    output = log_files.output(path) or log_files.Output()
                    yield int(name), workdir, (output.name, output.task), attempts[-1], _restarts(attempts)


def _listed(job_id: int, workdir: str, names: Sequence[str], last: Mapping[str, Any], restarts: int) -> Listed:
    """Return an ended job from its last attempt. Its user writes the record, so every value may be wrong.

    `names`: of the job, and of the array task that it is.
    """
    name, task = names
    start, end = history.time_of(last.get("start")), history.time_of(last.get("end"))
    nodes = nodes if isinstance(nodes := last.get("nodes"), str) and nodes != "?" else ""
    code = code if type(code := last.get("code")) is int and 0 <= code < 256 else None
    state = _ENDS.get(str(last.get("action")), "CANCELLED")
    if state == "COMPLETED" and code:  # it was told to end
        state = "CANCELLED"
    if history.is_over_time(last):
        state = "TIMEOUT"
    job = Job(
        job_id,
        own_name(),
        state,
        "",
        nodes,
        "",
        restarts,
        "",
        "",
        exit_code=code,
        name=name,
        start_time=start,
        end_time=end,
    )
    took_s = int((end - start).total_seconds()) if start and end and end >= start else None
    return Listed(job, task or str(job_id), len(nodelist.names(nodes)), 0, took_s, None, workdir)


def _names(workdir: str) -> list[str]:
    """Return the names of the jobs' directories in a working directory; empty without any."""
    try:
        return os.listdir(f"{workdir}/{job_directory.OURS}")  # noqa: PTH208 - pathlib is slower
    except (OSError, ValueError):
        return []


def uid_of(user: str) -> int:
    """Return the uid of a job's owner; NO_USER if there is no such user."""
    try:
        return pwd.getpwnam(user).pw_uid
    except (KeyError, ValueError):
        return int(user) if user.isdecimal() else NO_USER
