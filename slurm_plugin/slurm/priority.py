"""Change the priority of a waiting job between the site's words `normal`, `urgent` and `very-urgent`.

The site maps each word to a QOS, or to partitions of another PriorityTier (`priorities` in the site file). A user may
always return to `normal`. For the other words job_submit.lua passes the request of a job's owner to SlurmUser
(slurm_plugin.controller.owner_requests), who counts the urgent jobs of the user and the account. Operators need no
request.
"""

import time
from collections.abc import Callable, Iterator, Mapping
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
    """The priority was not changed (exit 1)."""


def word(request: Request, priorities: Priorities) -> str:
    """Return the word of a job: that of its QOS or of one of its partitions; `normal` without one."""
    partitions = request.partition.split(",")
    for each in (VERY_URGENT, URGENT):
        known = priorities.get(each, {})
        if known.get("qos") and known["qos"] == request.qos:
            return each
        if set(partitions) & {*known.get("partitions", {}).values()}:
            return each
    return NORMAL


def fields(to: str, request: Request, priorities: Priorities) -> dict[str, str]:
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


def change(
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
    changes = fields(to, request, priorities)
    if job.state not in WAITING:
        does = "has ended" if job.state in ENDED else "runs already: its place in the queue does not matter any longer"
        raise NotChangedError(f"job {job_id} {does}\n  see it with: slurm-plugin why {job_id}")
    before = word(request, priorities)
    if not changes:
        return f"it is {before} already"
    if to == URGENT and (why := over_cap(door, job, to, request, priorities)):
        raise NotChangedError(
            f"job {job_id} stays {before}: {why}\n  make one of them normal: slurm-plugin priority JOB normal"
        )
    door.queueing([job_id])  # otherwise a change to an array task could change the whole array
    left_s, said, asked = CHANGED_S, "SlurmUser did not change it", False
    while word(door.request(job_id), priorities) != to:
        if left_s <= 0:
            raise NotChangedError(_refused(job_id, to, before, changes, said))
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
                raise NotChangedError(_refused(job_id, to, before, changes, said)) from error
        sleep(_POLL_S)
        left_s -= _POLL_S
    return f"it is {to}, it was {before} ({_shown(changes)})"


def _refused(job_id: int, to: str, before: str, changes: Mapping[str, str], said: str) -> str:
    whose = "; only operators make a job very-urgent" if to == VERY_URGENT else ""
    command = f"scontrol update JobId={job_id} {_shown(changes)}"
    return f"job {job_id} stays {before}: {said}{whose}\n  an operator does it with: {command}"


def _shown(changes: Mapping[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in changes.items())
