"""What follows an error in its log: a program that goes on has survived it, and what it said last is why it ended.

Commands of a batch script print errors, and the script goes on. So such a line counts only if nothing but complaints
follows it in its log. Standard library only.
"""

import itertools
import os
import re
import signal
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from slurm_plugin.logs import lines
from slurm_plugin.logs.endings import Ended
from slurm_plugin.logs.judge import Cause
from slurm_plugin.logs.ranking import ANY_EXCEPTION, ENDINGS, SHELL, TRACEBACK
from slurm_plugin.logs.scan import BLOCK, Event
from slurm_plugin.logs.signature import Signature
from slurm_plugin.logs.source import NEAR, LogFile, with_reason

MOST: Final = 60  # lines that are looked at
OTHERS: Final = 10  # other lines that may follow an error if the program is known to have failed
WENT_ON: Final = 200  # lines after an exception, in a log without another sign of a failure: it was caught
SHELL_WENT_ON: Final = 40  # lines after an error of a shell, the last LAST of them without a complaint
LAST: Final = 5
STEPS: Final = 3  # steps after an exception: the same
_SAYS_NOTHING: Final = frozenset({"noise", "teardown"})  # roles of signatures
_RETRIED: Final = b" will be retried"  # Ray says this of a task whose worker died
# Exceptions that programs catch and print with their traceback.
_CAUGHT: Final = frozenset({
    "python-file-missing", "python-permission", "python-http", "net-refused", "net-name-unknown", "net-name-server",
    "net-timeout", "json-damaged", "ray-worker", "python-import", "python-module-missing",
})  # fmt: skip
# Classes of failures that end or stop a rank whatever its program does. All else it can catch.
_NOT_CAUGHT: Final = frozenset({
    "gpu_hw", "node_down", "net_fabric", "rank_hang", "segfault", "time_limit", "cancelled", "preempted", "unknown",
})  # fmt: skip
_KILLED: Final = "slurm-task-killed"  # Slurm does that, too, to what ignores its SIGTERM
_ENDED_FROM_OUTSIDE: Final = frozenset({-signal.SIGTERM, -signal.SIGKILL})
# Tracebacks below these lines are of exceptions that were ignored: in a destructor, at the program's exit.
IGNORING: Final = frozenset({"python-atexit", "dask-comm-closed"})
_IN_TRACEBACK = re.compile(r"\s|$|Traceback \(")
_CHAINED = re.compile(r"During handling of the above |The above exception was ")
MOST_IGNORED: Final = 1000  # of these lines; all ranks may write some
MOST_JUDGED: Final = 200  # exceptions in a job that was ended from outside: more of them are no accident
IGNORED_BYTES: Final = 8000  # in which the exception below one is looked for
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
    r"(?i)\b(?:0 (?:err|fail)\w*|no (?:err|fail)\w*|success\w*|complete\w*|finished|done"
    r"|(?:exit\w*|return\w*)(?: code| status)?[:= ]*0\b)"
)


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
    events = _without_ignored(_until_the_time_was_over(events), files)
    launchers = {name for name, each in files.items() if each.source.rank is None and each.path.name == "agent.log"}
    by_ranks = {each.text.strip() for each in events if launchers and each.source.rank is not None}

    def harmless(each: Event) -> bool:
        rank = each.text.strip() in by_ranks and not files[each.source.name].is_error_file
        return _is_harmless(each) or (rank and each.signature.failure not in _NOT_CAUGHT)

    caught = {number for number, each in enumerate(events) if harmless(each)}
    others = [
        each for number, each in enumerate(events) if number not in caught and each.signature.role not in _SAYS_NOTHING
    ]
    outside = bool(others) and len(caught) <= MOST_JUDGED and _from_outside(others, ends)
    if (others or ends) and not outside:
        return [*events]

    oom = any(each.signature.failure == "gpu_oom" for each in events)

    def survived(each: Event) -> bool:
        if launchers and (each.source.rank is not None or each.source.name in launchers):
            return True  # a launcher would have said that a rank failed
        return not raised and _went_on(each, events, files[each.source.name], progress, outside=outside, oom=oom)

    return [each for number, each in enumerate(events) if number not in caught or not survived(each)]


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
        if not any(start < each.offset <= end for start, end in spans.get((each.source.name, each.rank), ()))
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
        if _CHAINED.match(line.text):
            found = False
        elif found and line.text:
            break
        elif not _IN_TRACEBACK.match(line.text):
            end, found = at, True
    return end


def _went_on(
    event: Event, events: Sequence[Event], file: LogFile, progress: Sequence[Signature], *, outside: bool, oom: bool
) -> bool:
    """Return whether what follows an error in its log shows that the program went on.

    `outside`: something else ended it later. Other ranks, which wait for one that failed, may write until then.
    `oom`: whether the memory of a GPU was full.
    """
    if event.signature.failure == "symptom_only":
        return False
    with suppress(OSError), file.opened() as opened:
        opened.seek(event.offset)
        after = opened.read(NEAR)  # not by line: one can be as long as the file
        if not (outside or oom) and after.count(b"\n") >= WENT_ON:
            return True
        after += b"" if outside else opened.read(BLOCK - NEAR)
        if oom:  # PyTorch may print a table after it
            texts = [lines.read(raw).text for raw in after.split(b"\n")[1:]]
            return any(each.pattern.search(text) for text in texts for each in progress)
        if outside:
            shell = event.signature.id in SHELL and after.count(b"\n") > SHELL_WENT_ON
            return shell or _goes_on(event, after, progress)
        return after.count(b"\n") >= WENT_ON or _goes_on(event, after, progress) or _shell_went_on(after, events)
    return False


def _shell_went_on(after: bytes, events: Sequence[Event]) -> bool:
    """Return whether much follows an error of a shell, and nothing else looks like a failure."""
    said = after.split(b"\n")[1:]
    if len(said) <= SHELL_WENT_ON or any(
        each.signature.id not in SHELL and each.signature.role not in _SAYS_NOTHING for each in events
    ):
        return False
    last = [lines.read(raw).text for raw in said[-LAST - 1 :]]
    return not any(map(_complains, last))


def _complains(text: str) -> bool:
    return bool(_COMPLAINT.search(text)) and not _GOOD.search(text)


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
    return event.signature.id in {ANY_EXCEPTION, TRACEBACK, "cuda-oom-allocator", *_CAUGHT, *SHELL} or (
        event.signature.role == "symptom" and event.signature.failure == "symptom_only"
    )


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
    if len(logs) != 1:
        return cause
    known = {each.offset for each in events if each.source == logs[0].source}
    try:
        event = _found(logs[0], last, known, cause.ranks, OTHERS if failed else 0)
    except OSError:  # it is gone meanwhile
        event = None
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
        elif _SKIPPED.match(line.text) or _complains(line.text):
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
