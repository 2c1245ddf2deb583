"""Change the time limit or the priority of a job, as far as Slurm and the site allow it.

Slurm lets the owner of a running job only lower its limit, and nobody but operators choose a QOS that the site keeps
for urgent jobs. job_submit.lua passes such a request of an owner to SlurmUser (slurm_plugin.controller.owner_requests),
where the site allows it (`extend_time`, `priorities`); SlurmUser makes the change a moment later.

The site maps each word `normal`, `urgent` and `very-urgent` to a QOS, or to partitions of another PriorityTier. A user
may always return to `normal`. SlurmUser counts the urgent jobs of the user and the account. Operators need no request.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from slurm_plugin.errors import MissingError, SlurmPluginError, UsageError, printable
from slurm_plugin.slurm.model import ENDED, WAITING, Job, Request, Slurm, SlurmAwayError, SlurmError

NORMAL: Final[str] = "normal"
URGENT: Final[str] = "urgent"
VERY_URGENT: Final[str] = "very-urgent"
WORDS: Final = (NORMAL, URGENT, VERY_URGENT)
CHANGED_S: Final = 20.0  # longest wait for SlurmUser
_POLL_S: Final = 0.25
# Without slurmdbd, an edit of the partition returns the errno of an earlier call (job_mgr.c, _retrieve_new_assoc).
_AGAIN: Final = "Resource temporarily unavailable"
Priorities = Mapping[str, Mapping[str, Any]]  # word -> its `qos`, `partitions`, `per_user`, `per_account`


class NotChangedError(SlurmPluginError):
    """The job was not changed (exit 1)."""


def priority_word(request: Request, priorities: Priorities) -> str:
    """Return the word of a job: that of its QOS or of one of its partitions; `normal` without one."""
    partitions = request.partition.split(",")
    for each in (VERY_URGENT, URGENT):
        known = priorities.get(each, {})
        if known.get("qos") and known["qos"] == request.qos:
            return each
        if set(partitions) & {*known.get("partitions", {}).values()}:
            return each
    return NORMAL


def priority_fields(to: str, request: Request, priorities: Priorities) -> dict[str, str]:
    """Return the fields of a job to change, by scontrol's names. Raise UsageError for a word without a meaning here."""
    if to not in WORDS:
        raise UsageError(f"{printable(to)!r} is no priority; accepted: {', '.join(WORDS)}")
    known = priorities.get(to, {})
    if to != NORMAL and not known:
        raise MissingError(
            f"this site has no {to} jobs\n  an administrator maps the word: `priorities` in the site file"
        )
    normal = {urgent: name for each in priorities.values() for name, urgent in each.get("partitions", {}).items()}
    names = [normal.get(name, name) for name in request.partition.split(",")]
    if to != NORMAL and not known.get("qos"):
        if lacking := [name for name in names if name not in known["partitions"]]:
            has = ", ".join(known["partitions"])
            raise NotChangedError(f"partition {printable(lacking[0])} has no {to} jobs; {has} have them")
        names = [known["partitions"][name] for name in names]
    found = {"Partition": ",".join(dict.fromkeys(names))}
    qos = known.get("qos") or (priorities.get(NORMAL, {}).get("qos", NORMAL) if _by_qos(request, priorities) else "")
    found |= {"QOS": qos} if qos else {}
    return {name: value for name, value in found.items() if value != getattr(request, name.lower())}


def _by_qos(request: Request, priorities: Priorities) -> bool:
    """Return whether a job has the QOS of a word."""
    return request.qos in {each["qos"] for each in priorities.values() if each.get("qos")}


def over_cap(door: Slurm, job: Job, to: str, request: Request, priorities: Priorities) -> str:
    """Return why the user or the account of a job may not make it one of this word; "" if they may."""
    known = priorities.get(to, {})
    own = _own_names(door, job)
    for most, whose in _caps(known, job.user, request):
        others = door.queued(qos=known.get("qos") or "", partitions=[*known.get("partitions", {}).values()], **whose)
        there = [each for each in others if each not in own]
        if len(there) + len(own) > most:
            (kind, name), *_ = whose.items()
            jobs = "job" if len(there) == 1 else "jobs"
            if len(own) > 1:
                return (
                    f"it is an array of {len(own)} tasks, {kind} {printable(name)} has {len(there)} {to} {jobs} queued "
                    f"or running, and the site allows {most}"
                )
            return (
                f"{kind} {printable(name)} has {len(there)} {to} {jobs} queued or running, and the site allows {most}: "
                f"{' '.join(there[:8])}"
            )
    return ""


def _own_names(door: Slurm, job: Job) -> set[str]:
    """Return the names of what a change of this job changes: of an array that waits, all its tasks."""
    if name := door.queueing([job.id])[job.id].name:
        return {name}
    return {each for each in door.queued(user=job.user) if each.startswith(f"{job.id}_")} or {str(job.id)}


def _caps(known: Mapping[str, Any], user: str, request: Request) -> Iterator[tuple[int, dict[str, str]]]:
    if known.get("per_user"):
        yield known["per_user"], {"user": user}
    if known.get("per_account") and request.account:
        yield known["per_account"], {"account": request.account}


def change_priority(
    door: Slurm,
    job_id: int,
    to: str,
    priorities: Priorities,
    *,
    wait: bool = True,
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """Change the priority of a waiting job and return what was done.

    `wait`: after the edit, wait until SlurmUser has made the change. SlurmUser itself must not: the owner could undo
    the change, and then all other requests would wait.

    Raise UsageError for an unknown word, MissingError for a word that the site does not map, NotChangedError if Slurm
    or the site does not allow it, SlurmError if Slurm does not answer.
    """
    job, request = door.job(job_id), door.request(job_id)
    changes = priority_fields(to, request, priorities)
    if job.state not in WAITING:
        does = "has ended" if job.state in ENDED else "runs already: its place in the queue does not matter any longer"
        raise NotChangedError(f"job {job_id} {does}\n  see it with: slurm-plugin why {job_id}")
    before = priority_word(request, priorities)
    if not changes:
        return f"it is {before} already"
    if to == URGENT and (why := over_cap(door, job, to, request, priorities)):
        raise NotChangedError(
            f"job {job_id} stays {before}: {why}\n  make one of them normal: slurm-plugin priority JOB normal"
        )
    door.queueing([job_id])  # otherwise a change to an array task could change the whole array
    left_s, said, asked = CHANGED_S, "SlurmUser did not change it", False
    while priority_word(door.request(job_id), priorities) != to:
        if left_s <= 0:
            raise NotChangedError(_priority_refused(job_id, to, before, changes, said))
        try:
            if not asked:
                door.update_job(job_id, **changes)
                asked = True
                if not wait:
                    break
        except SlurmAwayError:
            raise
        except SlurmError as error:
            said = str(error).splitlines()[0]
            if _AGAIN not in said:
                raise NotChangedError(_priority_refused(job_id, to, before, changes, said)) from error
        sleep(_POLL_S)
        left_s -= _POLL_S
    return f"it is {to}, it was {before} ({_assignments(changes)})"


def _priority_refused(job_id: int, to: str, before: str, changes: Mapping[str, str], said: str) -> str:
    whose = "; only operators make a job very-urgent" if to == VERY_URGENT else ""
    command = f"scontrol update JobId={job_id} {_assignments(changes)}"
    return f"job {job_id} stays {before}: {said}{whose}\n  an operator does it with: {command}"


def _assignments(changes: Mapping[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in changes.items())


_LONGEST_MINUTES: Final = 10**7  # below Slurm's 32 bits


def change_time_limit(
    door: Slurm,
    job_id: int,
    seconds: int | None,
    *,
    longer: bool = False,
    most_s: int | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """Change the limit of a job and return what was done. Slurm counts in whole minutes.

    `seconds`: None for no limit. `longer`: add the given time instead of setting it. `most_s`: the most that the owner
    of a running job may ask SlurmUser for; None if the site does not allow that. Raise NotChangedError if Slurm or the
    site does not allow the change, UsageError for a limit that Slurm cannot have, SlurmError if Slurm does not answer.
    """
    job = door.job(job_id)
    if job.state in ENDED:
        raise NotChangedError(
            f"job {job_id} has ended: it is {job.state}\n  submit it again: slurm-plugin clone {job_id}"
        )
    before_s = time_limit_s(door, job_id)
    if before_s is None and longer:
        raise NotChangedError(f"job {job_id} has no time limit\n  give it one: slurm-plugin time {job_id} 4h")
    minutes = None if seconds is None else math.ceil(((before_s or 0) * longer + seconds) / 60)
    wanted_s = None if minutes is None else minutes * 60
    if minutes is not None and minutes > _LONGEST_MINUTES:
        raise UsageError(f"found a limit of {minutes} minutes; accepted: up to {_LONGEST_MINUTES}")
    if wanted_s is not None and (ran_s := _ran(job)) >= wanted_s:
        raise NotChangedError(
            f"job {job_id} has run for {_duration(ran_s)}: a limit of {_duration(wanted_s)} would end it now\n"
            f"  to end it: slurm-plugin stop {job_id}"
        )
    if before_s == wanted_s:
        return f"its time limit is {_duration(wanted_s)} already"
    raises = before_s is not None and (wanted_s is None or wanted_s > before_s)
    limit = "UNLIMITED" if minutes is None else str(minutes)
    cap = f"the site allows its owner {_duration(most_s)} (extend_time)" if most_s else ""
    try:
        door.update_job(job_id, TimeLimit=limit)
    except SlurmAwayError:
        raise
    except SlurmError as error:
        raise NotChangedError(_limit_refused(job, limit, cap or str(error), raises=raises)) from error
    left_s = CHANGED_S
    while (now_s := time_limit_s(door, job_id)) == before_s and left_s > 0:  # SlurmUser raises it a moment later
        sleep(_POLL_S)
        left_s -= _POLL_S
    if now_s == before_s:
        raise NotChangedError(_limit_refused(job, limit, cap or "SlurmUser did not raise it", raises=raises))
    ends = door.job(job_id).end_time if job.state == "RUNNING" and now_s else None
    until = f"; it ends at the latest at {ends.astimezone():%F %T %Z}" if ends else ""
    return f"its time limit is {_duration(now_s)}, it was {_duration(before_s)}{until}"


def time_limit_s(door: Slurm, job_id: int) -> int | None:
    """Return the limit in seconds; None without one. The door then also knows the name of an array task."""
    found = door.queueing([job_id])
    return found[job_id].time_limit_s if job_id in found else None


def _ran(job: Job) -> float:
    """Return how long a running job has run."""
    if job.state != "RUNNING" or job.start_time is None:
        return 0.0
    return float((datetime.now(UTC) - job.start_time).total_seconds())


def _limit_refused(job: Job, limit: str, said: str, *, raises: bool) -> str:
    """Return the message for a limit that stays, with the command for an administrator."""
    first = said.splitlines()[0]
    if not raises:
        return f"job {job.id} keeps its time limit: {first}\n  see it with: scontrol show job {job.id}"
    own = job.state == "RUNNING" and "denied" in first
    why = "Slurm lets only an operator raise the limit of a running job" if own else first
    return (
        f"job {job.id} keeps its time limit: {why}\n"
        f"  an operator does it with: scontrol update JobId={job.id} TimeLimit={limit}\n"
        "  a job with `grace`, `checkpoint` and `retries` saves at its limit and goes on in a new run"
    )


def _duration(seconds: float | None) -> str:
    """Return a time limit in Slurm's form; "none" without a limit."""
    if seconds is None:
        return "none"
    minutes, left = divmod(max(1, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"{f'{days}-' if days else ''}{hours:02}:{minutes:02}:{left:02}"
