"""The longest wait and the priority of a requeued job: what the plugin sets, and what it restores."""

from datetime import UTC, datetime, timedelta

from slurm_plugin.controller.queue_limits import (
    LOWEST_NICE,
    with_deadline,
    with_lowered_nice,
    with_own_deadline,
    with_own_nice,
)
from slurm_plugin.records.grant import NEVER, Grant, wait_ends
from slurm_plugin.slurm import Queueing

NOW = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)
PLAIN = Grant(3)
HOUR = Queueing(time_limit_s=3600)
OURS = Grant(3, deadline="2026-03-01T10:30:00")
OVER_THEIRS = Grant(3, deadline="2026-03-01T10:30:00", own_deadline="2026-03-02T00:00:00")


def at(hour: int, minute: int = 0, day: int = 1) -> datetime:
    """Return a time of the test's day."""
    return datetime(2026, 3, day, hour, minute, tzinfo=UTC)


BOUNDED = {
    "a time limit": (PLAIN, HOUR, OURS, {"Deadline": "2026-03-01T10:30:00", "TimeLimit": "60"}),
    "the least time is what the job needs": (
        PLAIN,
        Queueing(3600, 600),
        Grant(3, deadline="2026-03-01T09:40:00"),
        {"Deadline": "2026-03-01T09:40:00"},
    ),
    "no time limit": (
        PLAIN,
        Queueing(),
        Grant(3, deadline="2027-03-01T09:30:00"),
        {"Deadline": "2027-03-01T09:30:00", "TimeLimit": "525600"},
    ),
    "its own deadline is later": (
        PLAIN,
        Queueing(3600, 0, at(0, day=2)),
        OVER_THEIRS,
        {"Deadline": "2026-03-01T10:30:00", "TimeLimit": "60"},
    ),
    "its own deadline is earlier": (PLAIN, Queueing(3600, 0, at(10, 15)), PLAIN, {}),
    "its own deadline is past": (PLAIN, Queueing(3600, 0, at(8)), PLAIN, {}),
    "a second requeue: the first one's is no deadline of its own": (
        Grant(3, deadline="2026-02-01T00:00:00", own_deadline="2026-03-02T00:00:00"),
        Queueing(3600, 0, datetime(2026, 2, 1, tzinfo=UTC)),
        OVER_THEIRS,
        {"Deadline": "2026-03-01T10:30:00", "TimeLimit": "60"},
    ),
    "an administrator has changed ours meanwhile": (
        OURS,
        Queueing(3600, 0, at(12)),
        Grant(3, deadline="2026-03-01T10:30:00", own_deadline="2026-03-01T12:00:00"),
        {"Deadline": "2026-03-01T10:30:00", "TimeLimit": "60"},
    ),
    "a deadline that only says there is none": (
        PLAIN,
        Queueing(3600, 0, NEVER),
        OURS,
        {"Deadline": "2026-03-01T10:30:00", "TimeLimit": "60"},
    ),
}


def test_with_deadline() -> None:
    """Half an hour plus the time that the job needs, never later than its own deadline, which is remembered."""
    for what, (grant, queue, after, fields) in BOUNDED.items():
        assert with_deadline(grant, queue, 1800, NOW) == (after, fields), what


FREED = {
    "nothing of ours": (PLAIN, HOUR, {}),
    "its own deadline": (PLAIN, Queueing(3600, 0, at(12)), {}),
    "none, in so many words": (PLAIN, Queueing(3600, 0, NEVER), {}),
    "ours alone": (OURS, Queueing(3600, 0, at(10, 30)), {"Deadline": "2099-12-31T00:00:00"}),
    "ours before its own": (OVER_THEIRS, Queueing(3600, 0, at(10, 30)), {"Deadline": "2026-03-02T00:00:00"}),
    "ours before its own, which is past": (
        Grant(3, deadline="2026-02-01T00:00:00", own_deadline="2026-02-02T00:00:00"),
        Queueing(3600, 0, datetime(2026, 2, 1, tzinfo=UTC)),
        {},
    ),
    "somebody has changed ours": (OURS, Queueing(3600, 0, at(12)), {}),
}


def test_with_own_deadline() -> None:
    """Its own deadline is restored if the plugin's is still set, but not if it is past."""
    for what, (grant, queue, fields) in FREED.items():
        assert with_own_deadline(grant, queue, NOW) == (PLAIN, fields), what
        assert with_deadline(grant, queue, 0, NOW) == (PLAIN, fields), what


def test_a_long_run_of_requeues_keeps_the_jobs_own_deadline() -> None:
    """After many requeues its own deadline is the last one that the plugin did not set."""
    own, grant, queue, now = at(0, day=9), PLAIN, Queueing(3600, 0, at(0, day=9)), NOW
    for _ in range(50):
        grant, fields = with_deadline(grant, queue, 1800, now)
        if fields:
            queue = queue._replace(deadline=datetime.fromisoformat(fields["Deadline"]).replace(tzinfo=UTC))
        assert queue.deadline is not None
        assert queue.deadline <= own
        assert queue.deadline > now or own < now
        now += timedelta(hours=5)


NICE = {
    "never lowered, and not now": (PLAIN, 5, 0, ()),
    "lowered": (PLAIN, 5, 1000, (5, -995)),
    "lowered again, not further": (Grant(3, nice=(5, -995)), -995, 1000, (5, -995)),
    "lowered by another value of the site's": (Grant(3, nice=(5, -995)), -995, 10, (5, -5)),
    "lowered, then changed by its user": (Grant(3, nice=(5, -995)), 70, 1000, (70, -930)),
    "taken back": (Grant(3, nice=(5, -995)), -995, 0, (5, 5)),
    "the lowest that Slurm takes": (PLAIN, LOWEST_NICE + 1, 1000, (LOWEST_NICE + 1, LOWEST_NICE)),
}


def test_with_lowered_nice() -> None:
    """Its own Nice is remembered, and never lowered twice."""
    for what, (grant, nice, lower_by, expected) in NICE.items():
        assert with_lowered_nice(grant, Queueing(nice=nice), lower_by).nice == expected, what


def test_with_own_nice() -> None:
    """Its own Nice is restored if the plugin's is still set."""
    for nice, fields in [(-995, {"Nice": "5"}), (5, {}), (70, {})]:
        assert with_own_nice(Grant(3, nice=(5, -995)), Queueing(nice=nice)) == (PLAIN, fields), nice


def test_until() -> None:
    """The reverse of `with_deadline`; None for a deadline that the plugin did not set."""
    cases = [
        (OURS, Queueing(3600, 0, at(10, 30)), at(9, 30)),
        (OURS, Queueing(3600, 600, at(10, 30)), at(10, 20)),
        (PLAIN, Queueing(3600, 0, at(10, 30)), None),
        (OURS, Queueing(3600, 0, NEVER), None),
        (OURS, Queueing(3600), None),
        (OURS, Queueing(None, 0, at(10, 30)), None),
    ]
    for grant, queue, waits_until in cases:
        assert wait_ends(grant, queue) == waits_until, grant
