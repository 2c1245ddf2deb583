"""Whether a program recovered from an exception: it announces that it goes on, and does so, or its counters still rise.

Standard library only.
"""

import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from operator import and_
from typing import Final

from slurm_plugin.logs import lines
from slurm_plugin.logs.last_lines import complains, succeeds
from slurm_plugin.logs.ranking import TRACEBACK
from slurm_plugin.logs.scan import Event
from slurm_plugin.logs.source import NEAR, LogFile

LAST: Final = 5  # lines at the end that have no complaint
STEPS: Final = 3  # steps, or lines with a counter, after an exception
IN_TRACEBACK = re.compile(r"\s|$|Traceback \(")
CHAINS: Final = ("During handling of the above ", "The above exception was ")
CHAINED = re.compile("|".join(CHAINS))
# A program says this above the traceback of an exception from which it recovers.
_RECOVERS = re.compile(
    r"(?i)\b(?:re-?tr(?:y|ies|ied|ying)|continu(?:e|es|ing)|skip(?:s|ped|ping)?|ignor(?:e|es|ed|ing)|fall\w* back"
    r"|(?:try|us|restart)(?:s|ing) (?:the|with|another|again|instead))\b"
)
# The line above a traceback is about it only if it tells of trouble. Much else skips, ignores, uses or continues.
_TROUBLE = re.compile(
    r"(?i)\b(?:err(?:or)?s?|fail\w*|exceptions?|warn(?:ing)?|caught|died|dead|lost|crash\w*|corrupt\w*|damaged|broken"
    r"|bad|invalid|unread\w*|unavailable|unreachable|missing|interrupt\w*|time[ds]? ?out|refused"
    r"|(?:can|could)(?:no|n'| no)t|(?:attempt|retry|try) \W*\d+|retry(?:ing)? (?:in|after|with)|trying again"
    r"|not (?:found|reachable))\b"
)
# What a batch script prints at its end, also after a program that failed.
_TIDY = re.compile(
    r"(?i)\W*(?:(?:the )?(?:job|script|run)\b|end(?:ed|ing|s)?\b|elapsed|finish(?:ed|ing)? (?:at|on)\b|stop time"
    r"|(?:mon|tue|wed|thu|fri|sat|sun)\b)"
)
_OF_A_PART = re.compile(
    r"(?i)epoch|step|iter|batch|checkpoint|snapshot|sav(?:e|ing)|load|init|set\w* ?up|warm|eval|valid"
)
_CLOCK = re.compile(r"(?<!\d)(?:\d{1,4}[-/]\d\d?[-/]\d{1,4}T?|\d\d?:\d\d(?::\d\d)?(?:[.,]\d+)?)")
_CALM = re.compile(r"\b(?:DEBUG|INFO|WARN(?:ING)?)\b")
_NO_RECOVERY = re.compile(
    r"(?i)\b(?:g[ai]v(?:e|es|ing|en) up|no more|(?:can|could|do|did|will)(?:no|n'| no)t|not|unable|last"
    r"|(?:attempts?|retr(?:y|ies)\w*|tries) (?:failed|reached|exceeded|exhausted|used up)"
    r"|after \w+ (?:attempts|retries|tries)|max\w*(?: number of)? (?:attempts|retries|tries))\b"
)
# A line of a traceback, or its last.
RAISED = re.compile(r" {4}|(?:\w+\.)*[A-Z]\w*(?:Error|Exception)(?:: |$)|(?:\w+\.)+[A-Z]\w+: ")
_HEADER: Final = b"Traceback (most recent call last)"
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?")


def recovered(event: Event, file: LogFile) -> bool:
    """Return whether the program announced that it would go on, or counts on after an error as it did before.

    It counts if lines of one form, of which at least STEPS come before, have a number that still rises.
    """
    start = max(file.start, event.offset - NEAR)
    with suppress(OSError), file.opened() as opened:
        opened.seek(start)
        before, after = opened.read(event.offset - start), opened.read(NEAR).partition(b"\n")[2]
        rest = [lines.read(raw).text for raw in after.split(b"\n") if raw.strip()]
        head = before if event.signature.id == TRACEBACK else before.rpartition(_HEADER)[0]
        own = lines.read(head.rstrip(b"\n").rpartition(b"\n")[2]).text if head else event.text
        above = head.rstrip(b"\n").rpartition(b"\n")[0].rpartition(b"\n")[2]
        said = lines.read(above).text
        if own.startswith("Exception in thread ") and succeeds(said) and not _OF_A_PART.search(said):
            return True  # all was done before
        announced = _RECOVERS.search(own) and _TROUBLE.search(own) and not _NO_RECOVERY.search(own)
        more = [text for text in rest if not (IN_TRACEBACK.match(text) or CHAINED.match(text) or RAISED.match(text))]
        if announced and not all(map(_TIDY.match, more)) and not any(map(_gives_up, more[-LAST:])):
            return True
        return _counts_on([lines.read(raw).text for raw in before.split(b"\n")], rest)
    return False


def _gives_up(text: str) -> bool:
    if _NO_RECOVERY.search(text):
        return not _CALM.search(text)
    return complains(text) and not (_CALM.search(text) or _RECOVERS.search(text))


def _counts_on(before: Sequence[str], after: Sequence[str]) -> bool:
    seen = Counter[str]()
    first: dict[str, list[float]] = {}
    last: dict[str, list[float]] = {}
    rises: dict[str, list[bool]] = {}  # whether each number of the lines of a form rose so far
    for text in before:
        form, row = _row(text)
        above = last.get(form)
        rose = [value > above[column] for column, value in enumerate(row)] if above else [True] * len(row)
        rises[form] = [*map(and_, rises.get(form, rose), rose)]
        first.setdefault(form, row)
        last[form] = row
        seen[form] += 1
    count, anew = Counter[tuple[str, int]](), set[tuple[str, int]]()
    for text in after:
        form, row = _row(text)
        for column, value in enumerate(row) if seen[form] >= STEPS else ():
            if value <= first[form][column]:  # another run, from the beginning
                anew.add((form, column))
            elif rises[form][column] and value > last[form][column]:
                count[form, column] += 1
    return any(number >= STEPS and place not in anew for place, number in count.items())


def _row(text: str) -> tuple[str, list[float]]:
    """Return the form of a line, and its numbers without dates and times: these rise whatever happens."""
    text = _CLOCK.sub("", text)
    return " ".join(_NUMBER.sub("0", text).split()), [float(each) for each in _NUMBER.findall(text)]
