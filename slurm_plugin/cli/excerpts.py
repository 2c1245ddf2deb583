"""Parts of a job's logs for a report: the lines around an evidence, and what the checks of each attempt said.

The job's user owns the logs and the records that name them. So only files of the right owner are read, each within a
limit. Standard library only.
"""

import os
import re
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from slurm_plugin.logs import reader, tail
from slurm_plugin.logs.lines import OURS

BEFORE, AFTER = 3, 3  # lines around the evidence
AROUND: Final = 1 << 13  # bytes that are read on both sides of it
LONGEST: Final = 200  # characters of a line
SAME: Final = 60  # characters in which the line must agree with the evidence
MOST_LINES: Final = 20_000  # lines of slurm_plugin in one log
_ATTEMPT = re.compile(r"attempt (\d{1,6}) of job (\d{1,10})\b")
_CHECK = re.compile(r".{1,80}: ok on \S+|\S+ .{1,60}: (?:failed|timeout|error): .*")


def near(path: Path, byte: int, text: str, own: Path) -> list[tuple[int, str]]:
    """Return the lines around an evidence, with their distance from it; only the evidence if they cannot be read.

    `own`: the job's directory. The log must have the same owner, because the job's user chooses its path, and root, who
    can read every file, may write the report.
    """
    alone = [(0, reader.harmless(text)[:LONGEST])]
    try:
        with tail.opened(path) as (fd, found):
            if found.st_uid != own.stat().st_uid or not 0 <= byte < found.st_size:
                return alone
            start = max(0, byte - AROUND)
            block = os.pread(fd, byte - start + AROUND, start)
    except (OSError, ValueError, OverflowError):
        return alone
    before = block[: byte - start].decode("utf-8", "replace").splitlines()
    after = block[byte - start :].decode("utf-8", "replace").splitlines()
    if not after or text.strip()[:SAME] not in after[0]:
        return alone
    lines = [*before[-BEFORE:], *after[: AFTER + 1]]
    first = -len(before[-BEFORE:])
    return [(first + place, reader.harmless(line)[:LONGEST]) for place, line in enumerate(lines)]


def checks(paths: Iterable[Path], job_id: int, deadline_s: float) -> dict[int, list[str]]:
    """Return attempt -> the lines about its checks: `ITEM: ok on NODES`, `NODE ITEM: failed: WHAT`."""
    found: dict[int, list[str]] = {}
    until = time.monotonic() + deadline_s
    for path in paths:
        attempt, count = 0, 0
        with suppress(OSError):
            for _, raw in tail.marks(path, reader.part(path).range, OURS.encode()):
                count += 1
                if count > MOST_LINES or time.monotonic() > until:
                    break
                line = reader.harmless(raw.decode("utf-8", "replace"))[len(OURS) :]
                if (begins := _ATTEMPT.match(line)) and int(begins[2]) == job_id:
                    attempt = int(begins[1])
                elif _CHECK.fullmatch(line):
                    own = found.setdefault(attempt, [])
                    if line not in own:
                        own.append(line[:LONGEST])
    return found
