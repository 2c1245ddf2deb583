"""When a node was out of service: from slurmdbd's events, or from the past drains in the node's Comment. Pure."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, tzinfo
from typing import Any, Final, NamedTuple

from prechecks.report import OURS
from slurm_plugin.errors import printable
from slurm_plugin.records import node_drains, node_repairs
from slurm_plugin.records.history import duration, time_of
from slurm_plugin.slurm import Node
from slurm_plugin.slurm.resources import Event
from slurm_plugin.views.columns import fitted
from slurm_plugin.views.nodes import is_out, time_text

HEAD: Final = ("FROM", "UNTIL", "FOR", "BY", "BACK", "BECAUSE")
BY_ITSELF, BY_HAND, STILL = "by itself", "by hand", "still out"


class Time(NamedTuple):
    """A time during which the node was out of service."""

    start: datetime
    end: datetime | None  # None: still out, or not recorded
    by: str  # slurm_plugin, or a user
    back: str  # BY_ITSELF, BY_HAND, STILL; empty if that is not recorded
    because: str


def of_events(events: Iterable[Event]) -> list[Time]:
    """Return the times in slurmdbd's events, oldest first. An event without a cause is a restart of Slurm."""
    return [
        Time(
            each.start,
            each.end,
            "slurm_plugin" if each.reason.startswith(OURS) else each.user or "?",
            "" if each.end else STILL,
            each.reason.removeprefix(OURS),
        )
        for each in events
        if each.reason
    ]


def of_comment(node: Node) -> list[Time]:
    """Return the plugin's last drains, oldest first. A drain that the plugin did not end was ended by hand."""
    found = []
    past = node_drains.past_in(node.comment)
    for place, each in enumerate(past):
        start = time_of(each.start)
        if start is None:  # an administrator has changed the text
            continue
        open_now = place == len(past) - 1 and is_out(node) and node.standing_reason.startswith(OURS)
        back = BY_ITSELF if each.end else STILL if open_now else BY_HAND
        found.append(Time(start, time_of(each.end), "slurm_plugin", back, each.items.replace(",", ", ")))
    return found


def text(
    times: Sequence[Time], now: datetime, *, width: int = 0, on: bool = False, zone: tzinfo | None = None
) -> list[str]:
    """Return the times as a table, oldest first."""
    cells = [list(HEAD)]
    for each in times:
        until = time_text(each.end, zone) if each.end else "-" if each.back == STILL else "?"
        end = each.end or (now if each.back == STILL else None)
        lasted = duration((end - each.start).total_seconds()) if end else "?"
        cells.append([time_text(each.start, zone), until, lasted, each.by, each.back, each.because])
    cells = [[printable(cell) for cell in row] for row in cells]
    paints = [["bold"] * len(HEAD), *(["", "yellow" if row[4] == STILL else "", "", "", "", ""] for row in cells[1:])]
    without = [] if any(each.back for each in times) else ["BACK"]
    return fitted(cells, paints, width=width, optional=("FOR", "BACK", "BY"), without=without, on=on)


class Score(NamedTuple):
    """How often the node failed lately. `parts`: what counts, in words."""

    points: int
    parts: tuple[str, ...]


def score(node: Node, now: datetime) -> Score:
    """Return the score of a node by its Comment: the jobs that count for `repeat_drains` of the site file."""
    jobs = node_drains.jobs_of(node.comment, now.timestamp())
    repairs = [f"{each.step} for {each.item}" for each in node_repairs.recent(node.comment, now.timestamp())]
    parts = [f"drained for jobs {', '.join(jobs)} in {node_drains.REPEAT_DAYS} days"] if jobs else []
    parts += [f"repaired in {node_repairs.DAYS} days: {', '.join(repairs)}"] if repairs else []
    return Score(len(jobs), tuple(parts))


def form(each: Time) -> dict[str, Any]:
    """Return a time for --json."""
    start, end = (time and time.astimezone(UTC).isoformat() for time in (each.start, each.end))
    return {**each._asdict(), "start": start, "end": end}
