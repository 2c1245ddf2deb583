"""Change the time limit of a job, as far as Slurm and the site allow it.

The owner may change the limit of a waiting job up to the partition's MaxTime. For a running job, Slurm lets the owner
only lower it: a raise needs an operator, or a site with `extend_time`. On such a site job_submit.lua passes the owner's
request to SlurmUser (slurm_plugin.controller.owner_requests), who raises the limit a moment later.
"""

import math
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from slurm_plugin.errors import SlurmPluginError, UsageError
from slurm_plugin.slurm.model import ENDED, Job, Slurm, SlurmAwayError, SlurmError

RAISED_S: Final = 20.0  # longest wait for SlurmUser
_POLL_S: Final = 0.25
_LONGEST_MINUTES: Final = 10**7  # below Slurm's 32 bits


class NotChangedError(SlurmPluginError):
    """The time limit was not changed (exit 1)."""


def change(
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
    before_s = _limit(door, job_id)
    if before_s is None and longer:
        raise NotChangedError(f"job {job_id} has no time limit\n  give it one: slurm-plugin time {job_id} 4h")
    minutes = None if seconds is None else math.ceil(((before_s or 0) * longer + seconds) / 60)
    wanted_s = None if minutes is None else minutes * 60
    if minutes is not None and minutes > _LONGEST_MINUTES:
        raise UsageError(f"found a limit of {minutes} minutes; accepted: up to {_LONGEST_MINUTES}")
    if wanted_s is not None and (ran_s := _ran(job)) >= wanted_s:
        raise NotChangedError(
            f"job {job_id} has run for {_shown(ran_s)}: a limit of {_shown(wanted_s)} would end it now\n"
            f"  to end it: slurm-plugin stop {job_id}"
        )
    if before_s == wanted_s:
        return f"its time limit is {_shown(wanted_s)} already"
    raises = before_s is not None and (wanted_s is None or wanted_s > before_s)
    limit = "UNLIMITED" if minutes is None else str(minutes)
    cap = f"the site allows its owner {_shown(most_s)} (extend_time)" if most_s else ""
    try:
        door.update_job(job_id, TimeLimit=limit)
    except SlurmAwayError:
        raise
    except SlurmError as error:
        raise NotChangedError(_refused(job, limit, cap or str(error), raises=raises)) from error
    left_s = RAISED_S
    while (now_s := _limit(door, job_id)) == before_s and left_s > 0:  # SlurmUser raises it a moment later
        sleep(_POLL_S)
        left_s -= _POLL_S
    if now_s == before_s:
        raise NotChangedError(_refused(job, limit, cap or "SlurmUser did not raise it", raises=raises))
    ends = door.job(job_id).end_time if job.state == "RUNNING" and now_s else None
    until = f"; it ends at the latest at {ends.astimezone():%F %T %Z}" if ends else ""
    return f"its time limit is {_shown(now_s)}, it was {_shown(before_s)}{until}"


def _limit(door: Slurm, job_id: int) -> int | None:
    """Return the limit in seconds; None without one. The door then also knows the name of an array task."""
    found = door.queueing([job_id])
    return found[job_id].time_limit_s if job_id in found else None


def _ran(job: Job) -> float:
    """Return how long a running job has run."""
    if job.state != "RUNNING" or job.start_time is None:
        return 0.0
    return float((datetime.now(UTC) - job.start_time).total_seconds())


def _refused(job: Job, limit: str, said: str, *, raises: bool) -> str:
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


def _shown(seconds: float | None) -> str:
    """Return a time limit in Slurm's form; "none" without a limit."""
    if seconds is None:
        return "none"
    minutes, left = divmod(max(1, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"{f'{days}-' if days else ''}{hours:02}:{minutes:02}:{left:02}"
