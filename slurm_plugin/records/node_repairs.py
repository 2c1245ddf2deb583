"""The repairs of a node by the plugin, in the node's Comment: they outlast a boot, and every node can read them.

`[slurm_plugin: repairs: 2026-11-23T14:02:11Z/2026-11-23T14:09:40Z gpu-reset gpu-xid; 2026-11-23T14:09:41Z reboot
gpu-xid]`: when each step began and when it was over, the step and the item. A step that has no end yet keeps the other
nodes of its partitions from beginning one, for OPEN_S at most: the node may never come back. The text belongs to a
machine, as the past drains do (slurm_plugin.records.node_drains).
"""

from __future__ import annotations

import time
from collections import namedtuple

from slurm_plugin.records.metrics import REBOOT, RESET
from slurm_plugin.records.node_drains import REPAIRS, REPEAT, TIME, past_in, utc, without

REPORT = "report"
STEPS = (RESET, REBOOT, REPORT)
MOST, DAYS = 2, 7  # resets and reboots of a node in so many days
MOST_KEPT = 12
OPEN_S = 3600


class Repair(namedtuple("Repair", "start end step item")):
    """One step. The times are UTC, such as 2026-11-23T14:02:11Z; `end` is empty until the step is over."""

    __slots__ = ()
    start: str
    end: str
    step: str
    item: str

    def age_s(self, now: float) -> float:
        """Return the seconds since it began, at `now` (seconds since the epoch)."""
        from calendar import timegm  # noqa: PLC0415 - a hook that repairs nothing does not need it

        return now - timegm(time.strptime(self.start, TIME))


def repairs_in(comment: str) -> list[Repair]:
    """Return the repairs in a comment, oldest first. Entries that an administrator has changed are left out."""
    found = REPAIRS.search(comment)
    repairs = []
    for entry in found[1].split("; ") if found else ():
        times, _, rest = entry.partition(" ")
        begun, _, end = times.partition("/")
        step, _, item = rest.partition(" ")
        repair = Repair(begun, end, step, item)
        try:
            repair.age_s(0)
        except ValueError:
            continue
        if step in STEPS:
            repairs.append(repair)
    return repairs


def of_drain(comment: str) -> list[Repair]:
    """Return the repairs since the last drain began, oldest first."""
    past = past_in(comment)
    return [each for each in repairs_in(comment) if not past or each.start >= past[-1].start]


def recent(comment: str, now: float) -> list[Repair]:
    """Return the resets and reboots of the last DAYS, oldest first.

    A drain for REPEAT was ended by an administrator: repairs before it no longer count.
    """
    since = max(utc(now - DAYS * 86400), *("", *(each.start for each in past_in(comment) if REPEAT in each.items)))
    return [each for each in repairs_in(comment) if each.step != REPORT and each.start > since]


def has_open(comment: str, now: float) -> bool:
    """Return whether a step of the node is not over."""
    return any(not each.end and abs(each.age_s(now)) < OPEN_S for each in repairs_in(comment))


def with_repair(comment: str, step: str, item: str, now: float) -> str:
    """Return the comment with one more step that begins at `now`."""
    return _with(comment, [*repairs_in(comment), Repair(utc(now), utc(now) if step == REPORT else "", step, item)])


def ended(comment: str, now: float) -> str:
    """Return the comment in which every step is over; unchanged if each was."""
    repairs = repairs_in(comment)
    if all(each.end for each in repairs):
        return comment
    return _with(comment, [each._replace(end=each.end or utc(now)) for each in repairs])


def carried(old: str, new: str, now: float) -> str:
    """Return the comment `new` of a replaced machine with the repairs of the last day in `old`.

    An image may make a new /etc/machine-id at each boot, also at one that is a repair: its count must go on.
    """
    kept = [each for each in repairs_in(old) if each.age_s(now) < 86400]
    return _with(without(REPAIRS, new), kept)


def withdrawn(comment: str) -> str:
    """Return the comment without its last step, which has not begun."""
    return _with(comment, repairs_in(comment)[:-1])


def _with(comment: str, repairs: list[Repair]) -> str:
    rest = without(REPAIRS, comment)
    entries = (f"{each.start}{each.end and '/'}{each.end} {each.step} {each.item}" for each in repairs[-MOST_KEPT:])
    return f"{rest} [slurm_plugin: repairs: {'; '.join(entries)}]".lstrip() if repairs else rest
