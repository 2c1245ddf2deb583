"""That a program was found to be slow: `slow.jsonl` in the job's directory, one line for each time.

The recorder of the supervisor writes the file as the job's user. So it may have any content, and readers check every
value. Standard library only.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from slurm_plugin.errors import printable
from slurm_plugin.records import job_directory, progress_file

FILE: Final = "slow.jsonl"
VERSION: Final = 1
EVERY_S: Final = 3600.0  # at most one notice of a kind in this time
RATIO, STEPS = "ratio", "steps"  # kinds: `performance`, and steps against the best ones of the attempt
ACTIONS: Final = ("alert", "reschedule")
EVENT: Final = "slow"  # for the site's `notify` command
MOST_BYTES: Final = 4096  # of the words to the supervisor: a pipe takes them in one piece
EXAMPLE: Final = r"hw (?P<hardware>[\d.]+) of (?P<e2e>[\d.]+)"
NO_SUSPECT: Final = "what is known of its nodes names none of them"
LONGEST: Final = 300  # characters of a text that are shown


class Notice(NamedTuple):
    """What was found, and facts about nodes that may explain it."""

    t: float  # seconds since the epoch
    attempt: int
    kind: str
    text: str
    suspects: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """Return it as one sentence."""
        return f"{self.text}; {'; '.join(self.suspects) or NO_SUSPECT}"

    @property
    def dated(self) -> str:
        """Return it with the attempt and the time."""
        from datetime import UTC, datetime  # noqa: PLC0415 - a spec is read without these two

        from slurm_plugin.records.history import moment  # noqa: PLC0415 - as above

        at = moment(datetime.fromtimestamp(self.t, UTC))
        return f"attempt {self.attempt} was slow at {at}: {self.words}"


def check(expression: str) -> None:
    """Raise ValueError with what is accepted if the expression for hardware and end-to-end times is wrong."""
    progress_file.check(expression)
    pattern = re.compile(expression)
    if not {"hardware", "e2e"} <= pattern.groupindex.keys() and pattern.groups < 2:
        raise ValueError(f"a regular expression with two groups, such as {EXAMPLE}")


def due(known: Sequence[Notice], kind: str, attempt: int, now: float) -> bool:
    """Return whether a notice of this kind may be given: once in an attempt, and at most once in EVERY_S."""
    return all(each.attempt != attempt and now - each.t >= EVERY_S for each in known if each.kind == kind)


def write(path: Path, notice: Notice) -> None:
    """Append a notice to the file. Raise OSError."""
    job_directory.add_to_series(path, [{"v": VERSION, **notice._asdict()}], lambda _line: EVERY_S)


def newest(path: Path, owner: int | None = None) -> Notice | None:
    """Return the newest notice in a file; None without any."""
    found = read(path, owner)
    return found[-1] if found else None


def read(path: Path, owner: int | None = None) -> list[Notice]:
    """Return the notices in a file, oldest first; none if it cannot be read. `owner`: the required uid."""
    found = []
    for line in job_directory.series(path, owner):
        attempt, kind, text, suspects = (line.get(name) for name in ("attempt", "kind", "text", "suspects"))
        if isinstance(attempt, int) and isinstance(kind, str) and isinstance(text, str):
            named = suspects if isinstance(suspects, list) else []
            shown = tuple(_shown(each) for each in named[:8] if isinstance(each, str))
            found.append(Notice(float(line["t"]), attempt, kind, _shown(text), shown))
    return found


def _shown(text: str) -> str:
    return printable(text)[:LONGEST]
