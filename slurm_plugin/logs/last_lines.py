"""What a program said last is why it ended, if no other line tells it.

Commands of a batch script print errors, and the script goes on. So such a line counts only if nothing but complaints
follows it in its log. Standard library only.
"""

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from slurm_plugin.logs import lines
from slurm_plugin.logs.endings import Ended
from slurm_plugin.logs.judge import Cause
from slurm_plugin.logs.scan import Event
from slurm_plugin.logs.signature import Signature
from slurm_plugin.logs.source import NEAR, LogFile, with_reason

MOST: Final = 60  # lines that are looked at
OTHERS: Final = 10  # other lines that may follow an error if the program is known to have failed
_BLOCK: Final = re.compile(r"-{40,}")  # around what mpirun says
_MOST_IN_BLOCK: Final = 15  # lines
_LAUNCHER = re.compile(r"(?:srun|slurmstepd[\w.-]*|mpirun|mpiexec|prterun): |\[slurm_plugin\] ")
# `time` of a shell, its `set -x`, what is indented below an error.
_SKIPPED = re.compile(r"\s*$|\s+\S|(?:real|user|sys)\b|[~^=*#-]+$|\++ ")
_COMPLAINT = re.compile(
    r"(?i)\b(?:err(?:or)?s?|fail\w*|abort\w*|exit\w*|cannot|can't|denied|not found|stop\w*|terminat\w*|invalid|calls:"
    r"|please (?:check|see|try|make sure)\b)"
)
_GOOD = re.compile(
    r"(?i)\b(?:(?:0|no|without) (?:err|fail)\w*|success\w*|complete\w*|finished|done"
    r"|(?:exit\w*|return\w*)(?: code| status)?[:= ]*0\b)"
)


def complains(text: str) -> bool:
    """Return whether a line tells of something that went wrong."""
    return bool(_COMPLAINT.search(text)) and not succeeds(text)


def succeeds(text: str) -> bool:
    """Return whether a line tells that work is done, or that nothing went wrong."""
    return bool(_GOOD.search(text))


def explained(
    cause: Cause,
    files: Mapping[str, LogFile],
    signatures: Sequence[Signature],
    events: Collection[Event],
    ended: Mapping[int, Ended],
    *,
    failed: bool,
) -> Cause:
    """Return the cause with what the last lines of its log say, if no other line tells it.

    `events` are lines that other signatures know. `failed`: whether the exit code says that the program failed.
    """
    if cause.event is not None:
        cause = cause._replace(event=with_reason(cause.event, files[cause.event.source.name]))
    told = cause.event is not None and not cause.event.signature.summary
    killed = any(ended[each].code < 0 for each in cause.ranks if each in ended)
    if cause.failure not in ("none", "unknown") or told or killed:
        return cause
    logs = [each for each in files.values() if not each.is_error_file]
    logs = [each for each in logs if each.source.rank in cause.ranks] or logs
    last = [each for each in signatures if each.role == "last"]
    if len({each.source.rank for each in logs}) != 1 or (len(logs) > 1 and logs[0].source.rank is None):
        return cause
    event = None
    for log in sorted(logs, key=lambda log: log.path.suffix != ".err"):  # of one rank
        known = {each.offset for each in events if each.source == log.source}
        with suppress(OSError):  # it is gone meanwhile
            event = event or _found(log, last, known, cause.ranks, OTHERS if failed else 0)
    if event is None:
        return cause
    found = event.signature
    confidence = "unknown" if found.failure == "unknown" else "likely"
    ranks = cause.ranks or (() if event.rank is None else (event.rank,))
    return cause._replace(failure=found.failure, whose=found.whose, confidence=confidence, event=event, ranks=ranks)


def _found(
    file: LogFile, signatures: Sequence[Signature], known: Collection[int], ranks: Collection[int], others: int
) -> Event | None:
    """Return the first of the errors that end a log. `others`: how many other lines may follow it."""
    found, blocks, inside = None, 0, 0
    for count, (offset, line) in enumerate(_from_the_end(file)):
        if count == MOST or inside > _MOST_IN_BLOCK:
            break
        if ranks and line.rank is not None and line.rank not in ranks:
            continue
        if _BLOCK.match(line.text):
            blocks, inside = blocks + 1, 0
        if blocks % 2 or _BLOCK.match(line.text):
            inside += 1
            continue
        if offset in known or _LAUNCHER.match(line.text):
            continue
        if signature := next((each for each in signatures if each.pattern.search(line.text)), None):
            rank = file.source.rank if line.rank is None else line.rank
            found = Event(signature, file.source, 0, offset, rank, file.source.node, None, line.text)
        elif _SKIPPED.match(line.text) or complains(line.text):
            continue
        elif others and not found:
            others -= 1
        else:
            break
    return found


def _from_the_end(file: LogFile) -> Iterator[tuple[int, lines.Line]]:
    """Yield the offset and the text of each line of the last NEAR bytes, the last line first."""
    with file.opened() as opened:
        end = min(file.end, os.fstat(opened.fileno()).st_size)
        start = opened.seek(max(file.start, end - NEAR))
        raws = opened.read(end - start).split(b"\n")
    for at in range(len(raws) - 1, 0 if start > file.start else -1, -1):
        end -= len(raws[at])
        yield end, lines.read(raws[at])
        end -= 1
