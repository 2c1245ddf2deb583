"""The attempts of a job as rows for people. Pure: lines of `attempts.jsonl` in, text out.

The file is the job's user's: nothing in it is taken for granted, and what is missing is `?`.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

HEAD: Final = ("ATTEMPT", "START", "TOOK", "NODES", "CODE", "THEN", "BECAUSE")
THEN: Final[Mapping[str, str]] = {"requeue": "requeued", "fail": "failed", "finish": "ended", "hold": "held"}


def rows(attempts: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """HEAD and a row for each attempt, oldest first."""
    return [HEAD, *map(_row, attempts)]


def _row(attempt: Mapping[str, Any]) -> tuple[str, ...]:
    said = {name: str(attempt.get(name, "?")) for name in ("n", "nodes", "code", "action", "cause")}
    start, end = _time(attempt.get("start")), _time(attempt.get("end"))
    return (
        said["n"],
        start.astimezone().strftime("%Y-%m-%d %H:%M:%S") if start else "?",
        took((end - start).total_seconds()) if start and end else "?",
        said["nodes"],
        said["code"],
        THEN.get(said["action"], said["action"]),
        said["cause"],
    )


def verdicts(attempt: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The nodes that were found unfit, each with what was found."""
    found = attempt.get("verdicts")
    return [(str(node), str(what)) for node, what in found.items()] if isinstance(found, dict) else []


def took(seconds: float) -> str:
    """`45 s`, `12 min 5 s`, `3 h 20 min`, `2 d 4 h`; a clock that went back gives `?`."""
    if seconds < 0:
        return "?"
    if seconds < 60:
        return f"{seconds:.0f} s"
    for above, first, second, small in ((3600, 60, 1, ("min", "s")), (86400, 3600, 60, ("h", "min"))):
        if seconds < above:
            return f"{seconds // first:.0f} {small[0]} {seconds % first // second:.0f} {small[1]}"
    return f"{seconds // 86400:.0f} d {seconds % 86400 // 3600:.0f} h"


def utc(text: Any) -> str:
    """A recorded time for people; `?` for what is none."""
    found = _time(text)
    return found.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if found else "?"


def _time(text: Any) -> datetime | None:
    """A time with its zone; None for anything else."""
    try:
        found = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return found if found.tzinfo else None
