"""The reason next to a line that says no more than that a program stopped. Standard library only.

Some programs write a heading and their message below it; others write a message, and MPI_Abort's line follows it. The
class of the cause stays as it is: only its evidence becomes the line that people look for.
"""

import itertools
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from slurm_plugin.logs import lines
from slurm_plugin.logs.scan import Event
from slurm_plugin.logs.source import LogFile

MOST: Final = 5  # lines with a text between the two
BYTES: Final = 2000  # in which they are looked for


_BELOW: Final[Mapping[str, re.Pattern[str]]] = {  # the headings; the group is what lines of the same rank begin with
    "openfoam-fatal": re.compile(r"((?:\[\d+\] )?)--> FOAM FATAL (?:IO )?ERROR: *(?:\([^)]*\) *)?$"),
    "gromacs-fatal": re.compile(r"()[A-Z][\w ()]*:$"),
}
_ABOVE: Final = frozenset({"mpich-abort", "ompi-abort", "hpe-mpt-abort"})
_LAST_WORDS = re.compile(r"\W*(?:ABORT(?:ING)?|(?:FATAL )?ERROR|FATAL)\b\W*[^\W\d]", re.IGNORECASE)


def near(event: Event, file: LogFile) -> Event:
    """Return the line with the reason, if the event is such a line and has one next to it; else the event."""
    with suppress(OSError):  # it is gone meanwhile
        if event.signature.id in _ABOVE:
            return _above(event, file) or event
        if (heading := _BELOW.get(event.signature.id)) and (begin := heading.match(event.text)):
            return _below(event, file, begin[1]) or event
    return event


def _below(event: Event, file: LogFile, own: str) -> Event | None:
    with file.opened() as opened:
        opened.seek(event.offset)
        text = opened.read(BYTES)
    raws = text.split(b"\n")[: -1 if len(text) == BYTES else None]  # without a part of a line
    at = event.offset
    for above, raw in itertools.pairwise(raws[: 2 * MOST]):
        at += len(above) + 1
        line = lines.read(raw)
        of_rank = line.text.startswith(own) and line.rank in (None, event.rank)
        if of_rank and line.text[len(own) :].strip(" -"):
            return event._replace(text=line.text, offset=at)
    return None


def _above(event: Event, file: LogFile) -> Event | None:
    start = max(file.start, event.offset - BYTES)
    with file.opened() as opened:
        opened.seek(start)
        raws = opened.read(event.offset - start).split(b"\n")[:-1]
    at, said = event.offset, 0
    for raw in reversed(raws[1:] if start > file.start else raws):
        at -= len(raw) + 1
        line = lines.read(raw)
        if said == MOST:
            break
        if line.rank in (None, event.rank) and _LAST_WORDS.match(line.text):
            return event._replace(text=line.text, offset=at)
        said += any(map(str.isalnum, line.text))
    return None
