"""How far a program is: `progress.jsonl` in the job's directory, one line for each time that its log was read.

The recorder of the supervisor writes the file as the job's user. So it may have any content, and readers check every
value. Standard library only.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from slurm_plugin.records import job_directory

FILE: Final = "progress.jsonl"
VERSION: Final = 1
EVERY_S: Final = 10.0  # seconds between two reads of the log
LAST_BYTES: Final = 1 << 12  # the end of the file, for `last`
LONGEST: Final = 1024  # characters of a user's own expression
RECENT: Final = 30  # the newest points, from which the remaining time is computed


class Point(NamedTuple):
    """How far the program was at one time."""

    t: float  # seconds since the epoch
    attempt: int
    step: int
    of: int | None = None  # the number of all steps
    step_s: float | None = None  # seconds that a step took
    first: int | None = None  # in the first point of an attempt: its first step

    @property
    def text(self) -> str:
        """Return `1200/5000`, or `1200` if the number of all steps is not known."""
        return f"{self.step}/{self.of}" if self.of else str(self.step)


def check(expression: str) -> None:
    """Raise ValueError with what is accepted if a user's own expression for the steps in a log is wrong."""
    if len(expression) > LONGEST:
        raise ValueError(f"a regular expression of at most {LONGEST} characters")
    try:
        pattern = re.compile(expression)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"a regular expression of Python, and in this one: {error}") from error
    if not pattern.groups:
        raise ValueError(r"a regular expression with a group for the step, such as step (\d+)/(?P<of>\d+)")


def write(path: Path, points: Iterable[Point]) -> None:
    """Append points to the file. Raise OSError."""
    lines = (
        {
            "v": VERSION,
            **{name: value for name, value in each._asdict().items() if name != "first" or value is not None},
        }
        for each in points
    )
    job_directory.add_to_series(path, lines, lambda _line: EVERY_S)


def read(path: Path, owner: int | None = None) -> list[Point]:
    """Return the points in a file, oldest first; none if it cannot be read. `owner`: the required uid."""
    return _points(job_directory.series(path, owner))


def recent(path: Path, owner: int | None = None) -> list[Point]:
    """Return the newest points, oldest first: cheap enough for a list of many jobs."""
    return _points(job_directory.series(path, owner, LAST_BYTES))


def last(path: Path, owner: int | None = None) -> Point | None:
    """Return the newest point; None without any."""
    points = recent(path, owner)
    return points[-1] if points else None


def left_s(points: Sequence[Point]) -> float | None:
    """Return the seconds that the program still needs after its newest point; None if that is not known.

    The time of a step is computed from the newest points of the attempt, and includes checkpoints and validation. With
    only one point, use the time that the program printed.
    """
    if not points or not (newest := points[-1]).of:
        return None
    own = [each for each in points[-RECENT:] if each.attempt == newest.attempt]
    steps, took_s = newest.step - own[0].step, newest.t - own[0].t
    step_s = took_s / steps if steps > 0 and took_s > 0 else newest.step_s
    return None if step_s is None else max(0, newest.of - newest.step) * step_s


def _points(lines: Iterable[dict[str, Any]]) -> list[Point]:
    found = []
    for line in lines:
        names = ("step", "of", "attempt", "first")
        step, of, attempt, first = (
            None if (value := job_directory.number(line.get(name))) is None else int(value) for name in names
        )
        if step is not None:
            step_s = job_directory.number(line.get("step_s"))
            found.append(Point(float(line["t"]), attempt or 0, step, of, step_s, first))
    return found
