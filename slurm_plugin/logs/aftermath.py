"""What follows an error in its log: a program that goes on has survived it. Standard library only."""

import bisect
import itertools
import re
import signal
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from operator import attrgetter
from typing import Final

from slurm_plugin.logs import lines
from slurm_plugin.logs.endings import Ended
from slurm_plugin.logs.last_lines import complains, succeeds
from slurm_plugin.logs.ranking import ANY_EXCEPTION, ENDINGS, SETUP, SHELL, TRACEBACK
from slurm_plugin.logs.recovery import CHAINED, CHAINS, IN_TRACEBACK, LAST, RAISED, STEPS, recovered
from slurm_plugin.logs.scan import BLOCK, Event
from slurm_plugin.logs.signature import Signature
from slurm_plugin.logs.source import NEAR, LogFile

WENT_ON: Final = 200  # lines after an exception, in a log without another sign of a failure: it was caught
SHELL_WENT_ON: Final = 40  # lines after an error of a shell, the last LAST of them without a complaint
_SAYS_NOTHING: Final = frozenset({"noise", "teardown"})  # roles of signatures
_RETRIED: Final = b" will be retried"  # Ray says this of a task whose worker died
# Programs catch and print these, too. They have no name of an exception, or no class.
_CAUGHT: Final = frozenset({
    "python-permission", "python-http", "net-refused", "net-name-unknown", "net-name-server", "net-timeout",
    "ray-worker", "python-memory", "python-pool-broken",
})  # fmt: skip
_PRINTED: Final = frozenset({ANY_EXCEPTION, TRACEBACK, "cuda-oom-allocator", *_CAUGHT, *SHELL})
# Classes of failures that end or stop a rank whatever its program does. All else it can catch.
_NOT_CAUGHT: Final = frozenset({
    "gpu_hw", "node_down", "net_fabric", "rank_hang", "segfault", "time_limit", "cancelled", "preempted", "unknown",
})  # fmt: skip
_EXITS: Final = frozenset({"torch-exit-code", "torch-exit-killed"})
_RESTARTED: Final = re.compile(r"(?i)\b(?:resum(?:ed|ing)|restart(?:ed|ing))\b")
# A rank can catch an exception of these two classes, if its launcher says of no rank that it failed: another process
# crashed, or was killed. After a fault of a GPU, a node or the network, and after a time-out, none works on.
_OF_OTHER_PROCESSES: Final = frozenset({"segfault", "unknown"})
_KILLED: Final = "slurm-task-killed"  # Slurm does that, too, to what ignores its SIGTERM
_ENDED_FROM_OUTSIDE: Final = frozenset({-signal.SIGTERM, -signal.SIGKILL})
# Tracebacks below these lines are of exceptions that were ignored: in a destructor, at the program's exit.
IGNORING: Final = frozenset({"python-atexit", "python-logged", "dask-comm-closed"})
MOST_IGNORED: Final = 1000  # of these lines; all ranks may write some
MOST_JUDGED: Final = 200  # exceptions in a job that was ended from outside: more of them are no accident
IGNORED_BYTES: Final = 8000  # in which the exception below one is looked for


def uncaught(
    events: Sequence[Event],
    files: Mapping[str, LogFile],
    ends: Mapping[int, Ended],
    progress: Sequence[Signature],
    *,
    raised: bool,
) -> list[Event]:
    """Return the events without exceptions that the program caught, if it went on and nothing else failed.

    `raised`: the program's exit code says that an exception ended it.
    """
    events = _survived_by_ranks(_without_ignored(_until_the_time_was_over(events), files), files)
    launchers = {name for name, each in files.items() if each.source.rank is None and each.path.name == "agent.log"}
    by_ranks = {each.text.strip() for each in events if launchers and each.source.rank is not None}
    ending = any(each.signature.failure in ENDINGS for each in events)
    restarted = set[str]() if launchers or ends or ending else _restarted(events, files)

    def harmless(each: Event) -> bool:
        if files[each.source.name].is_error_file:  # it has what ended its rank
            return False
        raised = each.source.name not in launchers and bool(RAISED.match(each.text))
        of_others = bool(launchers and raised) and each.signature.failure in _OF_OTHER_PROCESSES
        may_catch = each.signature.failure not in _NOT_CAUGHT or of_others
        if each.signature.id in _EXITS:  # torchrun's table at the end would tell of a failure
            return each.source.name in restarted
        return _is_harmless(each) or ((raised or each.text.strip() in by_ranks) and may_catch)

    caught = {number for number, each in enumerate(events) if harmless(each)}
    others = [
        each for number, each in enumerate(events) if number not in caught and each.signature.role not in _SAYS_NOTHING
    ]
    outside = bool(others) and len(caught) <= MOST_JUDGED and _from_outside(others, ends)
    if (others or ends) and not outside:
        return [*events]

    oom = any(each.signature.failure == "gpu_oom" for each in events)
    said = {each.signature.id for each in events if each.signature.role not in _SAYS_NOTHING}

    def survived(each: Event) -> bool:
        if launchers and (each.source.rank is not None or each.source.name in launchers):
            return True  # a launcher would have said that a rank failed
        file = files[each.source.name]
        return not raised and (
            each.signature.id in _EXITS
            or _went_on(each, said, file, progress, outside=outside, oom=oom)
            or (not (outside or oom) and recovered(each, file))
        )

    return [each for number, each in enumerate(events) if number not in caught or not survived(each)]


def _survived_by_ranks(events: Sequence[Event], files: Mapping[str, LogFile]) -> list[Event]:
    """Return the events without exceptions after which a rank went on until it lost the others, if one of them failed.

    A rank ends only once: of two of its tracebacks, it survived the first.
    """
    heads: dict[str, list[int]] = {}
    lost: dict[str, int] = {}  # in the log of each rank: where the traceback begins with which it lost the others
    for each in sorted(events, key=attrgetter("offset")):
        if each.source.rank is not None and each.signature.id == TRACEBACK:
            heads.setdefault(each.source.name, []).append(each.offset)
    for each in (each for each in events if each.signature.failure == "symptom_only"):
        above = heads.get(each.source.name, [])
        if count := bisect.bisect_left(above, each.offset):
            lost[each.source.name] = above[count - 1]
    roots = [(number, each) for number, each in enumerate(events) if each.signature.role == "root"]
    survived = {
        number
        for number, each in roots
        if each.offset < lost.get(each.source.name, 0)
        and RAISED.match(each.text)
        and not _is_chained(each, lost[each.source.name], files[each.source.name])
    }
    theirs = {events[number].source for number in survived}
    failed = any(each.source.rank is not None and each.source not in theirs for _, each in roots)
    return [each for number, each in enumerate(events) if not (failed and number in survived)]


def _is_chained(event: Event, until: int, file: LogFile) -> bool:
    """Return whether the traceback at `until` belongs to the same exception as this event."""
    with suppress(OSError), file.opened() as opened:
        opened.seek(event.offset)
        between = opened.read(min(until - event.offset, NEAR))
        if not any(each.encode() in between for each in CHAINS):
            return False
        return any(CHAINED.match(lines.read(raw).text) for raw in between.split(b"\n"))
    return True


def _from_outside(others: Sequence[Event], ends: Mapping[int, Ended]) -> bool:
    """Return whether these lines and ends only say that Slurm or the user ended the job, whatever it did before."""
    said = [each.signature.failure in ENDINGS for each in others if each.signature.id != _KILLED]
    return any(said) and all(said) and {each.code for each in ends.values()} <= _ENDED_FROM_OUTSIDE


def _until_the_time_was_over(events: Sequence[Event]) -> list[Event]:
    """Return the events without exceptions next to Slurm's line about the time limit: its SIGTERM made them."""
    over: dict[str, int] = {}
    for each in events:
        if each.signature.failure == "time_limit" and each.signature.sure:
            over[each.source.name] = min(each.offset, over.get(each.source.name, each.offset))
    return [
        each
        for each in events
        if not (0 < each.offset - over.get(each.source.name, each.offset) < NEAR and _is_harmless(each))
    ]


def _without_ignored(events: Sequence[Event], files: Mapping[str, LogFile]) -> list[Event]:
    """Return the events without those in tracebacks of exceptions that Python or a library ignored, as it says."""
    headers = (each for each in events if each.signature.id in IGNORING)
    spans: dict[tuple[str, int | None], list[tuple[int, int]]] = {}
    for each in itertools.islice(headers, MOST_IGNORED):
        with suppress(OSError):  # it is gone meanwhile
            spans.setdefault((each.source.name, each.rank), []).append((each.offset, _end_of_ignored(each, files)))
    return [
        each
        for each in events
        if not any(start <= each.offset <= end for start, end in spans.get((each.source.name, each.rank), ()))
    ]


def _end_of_ignored(header: Event, files: Mapping[str, LogFile]) -> int:
    """Return the offset of the exception below such a line; of the last one in a chain."""
    with files[header.source.name].opened() as opened:
        opened.seek(header.offset)
        raws = opened.read(IGNORED_BYTES).split(b"\n")
    prefix = raws[0][: max(0, raws[0].find(header.text[:20].encode()))]
    at = end = header.offset
    found = False  # an exception: its chain may go on
    for above, raw in itertools.pairwise(raws):
        at += len(above) + 1
        if not raw.startswith(prefix):
            continue  # of another rank
        line = lines.read(raw)
        if CHAINED.match(line.text):
            found = False
        elif found and line.text:
            break
        elif not IN_TRACEBACK.match(line.text):
            end, found = at, True
    return end


def _went_on(
    event: Event, known: Set[str], file: LogFile, progress: Sequence[Signature], *, outside: bool, oom: bool
) -> bool:
    """Return whether what follows an error in its log shows that the program went on.

    `known`: the signatures of all lines that say something. `outside`: something else ended it later. Other ranks,
    which wait for one that failed, may write until then. `oom`: whether the memory of a GPU was full.
    """
    if event.signature.failure == "symptom_only":
        return False
    with suppress(OSError), file.opened() as opened:
        opened.seek(event.offset)
        after = opened.read(NEAR)  # not by line: one can be as long as the file
        if not (outside or oom) and _many(after, event):
            return True
        after += b"" if outside else opened.read(BLOCK - NEAR)
        if oom:  # PyTorch may print a table after it
            texts = [lines.read(raw).text for raw in after.split(b"\n")[1:]]
            return any(each.pattern.search(text) for text in texts for each in progress)
        if outside:
            shell = event.signature.id in SHELL and after.count(b"\n") > SHELL_WENT_ON
            return shell or _goes_on(event, after, progress)
        return _many(after, event) or _goes_on(event, after, progress) or _shell_went_on(after, known)
    return False


def _many(after: bytes, event: Event) -> bool:
    """Return whether WENT_ON lines follow of the same rank, as far as known. After an exact line they say less."""
    if event.signature.id not in _PRINTED or event.rank is None or after.count(b"\n") < WENT_ON:
        return event.signature.id in _PRINTED and after.count(b"\n") >= WENT_ON
    own = (raw for raw in after.split(b"\n")[1:] if lines.read(raw).rank in (None, event.rank))
    return len([*itertools.islice(own, WENT_ON)]) == WENT_ON


def _restarted(events: Sequence[Event], files: Mapping[str, LogFile]) -> set[str]:
    """Return the logs where the ranks were started again after the last one had ended, and then did all their work."""
    last = {
        each.source.name: each.offset
        for each in sorted(events, key=attrgetter("offset"))
        if each.signature.id in _EXITS
    }
    found = set[str]()
    for name, offset in last.items():
        with suppress(OSError), files[name].opened() as opened:
            opened.seek(offset)
            said = [lines.read(raw).text for raw in opened.read(BLOCK).split(b"\n")[1:] if raw.strip()]
            if any(map(_RESTARTED.search, said)) and succeeds(said[-1]):
                found.add(name)
    return found


def _shell_went_on(after: bytes, known: Set[str]) -> bool:
    """Return whether much follows an error of a shell, or what says that all is done, and nothing else failed."""
    if known - SHELL:
        return False
    said = after.split(b"\n")[1:]
    last = [lines.read(raw).text for raw in [raw for raw in said if raw.strip()][-LAST:]]
    if any(map(complains, last)):
        return False
    done = sum(map(succeeds, last))
    ready = known <= SETUP and bool(last) and succeeds(last[-1])
    return ready or len(said) > SHELL_WENT_ON or (len(said) > 2 * LAST and done > LAST // 2)


def _goes_on(event: Event, after: bytes, progress: Sequence[Signature]) -> bool:
    """Return whether the program that wrote a line makes STEPS steps after it, or does its work again."""
    steps: list[float] = []
    for raw in after.split(b"\n")[1:]:
        line = lines.read(raw)
        found = next(filter(None, (each.pattern.search(line.text) for each in progress)), None)
        if found and line.rank in (None, event.rank) and not line.text.startswith("wandb:"):
            step = float(found["what"])
            steps = [*steps, step] if not steps or step > steps[-1] else steps
    return len(steps) >= STEPS or _RETRIED in after


def _is_harmless(event: Event) -> bool:
    """Return whether a program or a shell that goes on may have written this."""
    return event.signature.id in _PRINTED or (
        event.signature.role == "symptom" and event.signature.failure == "symptom_only"
    )
