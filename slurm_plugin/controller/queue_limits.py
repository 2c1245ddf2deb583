"""Limit how long a requeued job waits, and set its priority, by Slurm's Deadline and Nice. Pure: values in, fields out.

Slurm ends a pending job as DEADLINE when the job can no longer end before its deadline. So the deadline that the plugin
sets is the sum of now, the allowed wait and the job's time limit. Facts, the same on 22.05, 24.11 and 26.05:

- no value removes a deadline, but a deadline that is far enough away does nothing;
- the deadline of a running job cannot be changed (the update reports no error), that of a completing job can;
- if the job has a `--time-min`, Slurm takes that as the time the job needs;
- Slurm ignores the deadline of a job that does not have a time limit of its own, so the plugin sets one;
- a new Nice releases a held job: the priority of a held job is 0, and Slurm adds Nice to the priority.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from slurm_plugin.records.grant import NEVER, Grant, has_deadline, time_text
from slurm_plugin.slurm import Queueing

LOWEST_NICE: Final = -(2**31 - 3)  # NICE_OFFSET in slurm.h: Slurm accepts no lower value
NO_LIMIT_S: Final = 365 * 86400  # Slurm's own scheduler assumes the same for a job without a limit
Fields = dict[str, str]


@dataclass(frozen=True, slots=True)
class Policy:
    """The site's settings for requeued jobs."""

    queue_timeout_s: int = 0  # 0: these jobs wait without a limit
    nice: int = 0  # how much to lower the Nice of a job that is requeued because root found a node bad

    @staticmethod
    def of(recovery: Mapping[str, Any]) -> "Policy":
        """Read the part `recovery` of the compiled site file."""
        return Policy(*(recovery.get(name, 0) for name in ("queue_timeout_s", "nice")))


def with_deadline(grant: Grant, queue: Queueing, wait_s: int, now: datetime) -> tuple[Grant, Fields]:
    """Return the grant and the fields of a job that may wait for `wait_s` seconds from `now`; 0: without a limit.

    The grant remembers the job's own deadline, which stays in force if it is earlier.
    """
    own = _own(grant, queue)
    until = now + timedelta(seconds=wait_s + (queue.time_min_s or queue.time_limit_s or NO_LIMIT_S))
    if not wait_s or (own and own <= until):
        return with_own_deadline(grant, queue, now)
    fields = {"Deadline": time_text(until)}
    if not queue.time_min_s:
        fields["TimeLimit"] = str((queue.time_limit_s or NO_LIMIT_S) // 60)
    return replace(grant, deadline=time_text(until), own_deadline=time_text(own)), fields


def with_own_deadline(grant: Grant, queue: Queueing, now: datetime) -> tuple[Grant, Fields]:
    """Return the grant and the fields that restore the job's own deadline, or no deadline if it has none."""
    own, fields = _own(grant, queue), Fields()
    # Slurm refuses a deadline in the past. If the job's own deadline is past, so is the plugin's.
    if own != _real(queue.deadline) and (own is None or own > now):
        fields["Deadline"] = time_text(own or NEVER)
    return replace(grant, deadline="", own_deadline=""), fields


def with_lowered_nice(grant: Grant, queue: Queueing, lower_by: int) -> Grant:
    """Return the grant with the Nice that the step Start sets: the job's own Nice minus `lower_by`."""
    if not lower_by and not grant.nice:
        return grant
    own = _own_nice(grant, queue)
    return replace(grant, nice=(own, max(LOWEST_NICE, own - lower_by)))


def with_own_nice(grant: Grant, queue: Queueing) -> tuple[Grant, Fields]:
    """Return the grant and the fields that restore the job's own Nice."""
    own = _own_nice(grant, queue)
    return replace(grant, nice=()), Fields() if own == queue.nice else {"Nice": str(own)}


def _own_nice(grant: Grant, queue: Queueing) -> int:
    """Return the job's own Nice: the grant's, unless an administrator has changed it since."""
    return grant.nice[0] if grant.nice and queue.nice == grant.nice[1] else queue.nice


def _own(grant: Grant, queue: Queueing) -> datetime | None:
    """Return the job's own deadline: the grant's, unless an administrator has changed it since."""
    from slurm_plugin.slurm.parse import utc  # noqa: PLC0415 - a hook that wakes the worker does without

    return _real(utc(grant.own_deadline) if has_deadline(grant, queue) else queue.deadline)


def _real(deadline: datetime | None) -> datetime | None:
    """Return the deadline; None if it is NEVER or later, which means no deadline."""
    return None if deadline is None or deadline >= NEVER else deadline
