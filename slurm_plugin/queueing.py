"""How long a requeued job may wait, and behind whom: Slurm's own Deadline and Nice. Pure: values in, fields out.

Slurm ends a pending job as DEADLINE once it could not end before its deadline any more, so the one that we set is now,
the allowed wait and the job's time limit together. Facts that this is made of, seen alike on 22.05, 24.11 and 26.05:

- no value takes a deadline away again: one that is far enough does nothing;
- a running job's deadline cannot be changed (the update says nothing), a completing job's can;
- where `--time-min` was given, that is the time the job needs;
- a job without a time limit, or with its partition's alone, never meets a deadline: it gets its limit in so many words;
- a Nice given to a held job lets it go: the priority of a held job is 0, and Nice is added to it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from slurm_plugin.grant import Grant
from slurm_plugin.slurm import Queueing

NEVER: Final = datetime(2099, 12, 31, tzinfo=UTC)
LOWEST_NICE: Final = -(2**31 - 3)  # NICE_OFFSET in slurm.h: Slurm takes no lower one
NO_LIMIT_S: Final = 365 * 86400  # for which Slurm's own scheduler takes a job without a limit, too
Fields = dict[str, str]


@dataclass(frozen=True, slots=True)
class Policy:
    """What the site says of jobs that were requeued."""

    queue_timeout_s: int = 0  # 0: they wait for as long as it takes
    nice: int = 0  # by how much the Nice of one is lowered that a verdict of root's stands behind

    @staticmethod
    def of(recovery: Mapping[str, Any]) -> "Policy":
        """What the compiled site file's part `recovery` says of it."""
        return Policy(*(recovery.get(name, 0) for name in ("queue_timeout_s", "nice")))


def bounded(grant: Grant, queue: Queueing, wait_s: int, now: datetime) -> tuple[Grant, Fields]:
    """The grant and the fields of a job that may wait for `wait_s` from `now` on; 0: for as long as it takes.

    A deadline of the job's own is remembered, and stands where it is the earlier one.
    """
    own = _own(grant, queue)
    until = now + timedelta(seconds=wait_s + (queue.time_min_s or queue.time_limit_s or NO_LIMIT_S))
    if not wait_s or (own and own <= until):
        return freed(grant, queue, now)
    fields = {"Deadline": text(until)}
    if not queue.time_min_s:
        fields["TimeLimit"] = str((queue.time_limit_s or NO_LIMIT_S) // 60)
    return replace(grant, deadline=text(until), own_deadline=text(own)), fields


def freed(grant: Grant, queue: Queueing, now: datetime) -> tuple[Grant, Fields]:
    """The grant and the fields of a job that goes by its own deadline again, if it has one."""
    own, fields = _own(grant, queue), Fields()
    if own != _real(queue.deadline) and (
        own is None or own > now
    ):  # Slurm refuses one that is past; ours is past as well
        fields["Deadline"] = text(own or NEVER)
    return replace(grant, deadline="", own_deadline=""), fields


def placed(grant: Grant, queue: Queueing, lower_by: int) -> Grant:
    """The grant of a job that is to have its own Nice, lowered by so much; what it is given with its start."""
    if not lower_by and not grant.nice:
        return grant
    own = _own_nice(grant, queue)
    return replace(grant, nice=(own, max(LOWEST_NICE, own - lower_by)))


def unplaced(grant: Grant, queue: Queueing) -> tuple[Grant, Fields]:
    """The grant and the fields of a job that goes by its own Nice again."""
    own = _own_nice(grant, queue)
    return replace(grant, nice=()), Fields() if own == queue.nice else {"Nice": str(own)}


def until(grant: Grant, queue: Queueing) -> datetime | None:
    """Until when a pending job may wait by a deadline of ours; None without one, or where somebody has moved it."""
    needs_s = queue.time_min_s or queue.time_limit_s
    if not needs_s or queue.deadline is None or not _ours(grant, queue):
        return None
    return queue.deadline - timedelta(seconds=needs_s)


def _own_nice(grant: Grant, queue: Queueing) -> int:
    """The Nice that is not ours: what was remembered, or whatever somebody has set meanwhile."""
    return grant.nice[0] if grant.nice and queue.nice == grant.nice[1] else queue.nice


def _own(grant: Grant, queue: Queueing) -> datetime | None:
    """The deadline that is not ours: what was remembered, or whatever somebody has set meanwhile."""
    return _real(_time(grant.own_deadline) if _ours(grant, queue) else queue.deadline)


def _ours(grant: Grant, queue: Queueing) -> bool:
    """Whether the deadline that the job has is the one that we gave it."""
    return bool(grant.deadline) and text(queue.deadline) == grant.deadline


def _real(deadline: datetime | None) -> datetime | None:
    """None for a deadline that only says that there is none."""
    return None if deadline is None or deadline >= NEVER else deadline


def text(time: datetime | None) -> str:
    """A time as the door takes it; empty for none."""
    return time.strftime("%Y-%m-%dT%H:%M:%S") if time else ""


def _time(written: str) -> datetime | None:
    try:
        return datetime.fromisoformat(written).replace(tzinfo=UTC)
    except ValueError:
        return None
