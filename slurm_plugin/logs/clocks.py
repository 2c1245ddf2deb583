"""When each rank failed, by the time stamps in its log, with the clocks of several nodes aligned.

All ranks print the line of a step at about the same moment. So the median difference between these lines in the logs
of two nodes is the difference between their clocks. What is read is bounded. Standard library only.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Final

from slurm_plugin.logs import lines, times
from slurm_plugin.logs.endings import Ended
from slurm_plugin.logs.scan import Event, Source
from slurm_plugin.logs.signature import Signature
from slurm_plugin.logs.source import LogFile

BEFORE: Final = 1 << 14  # bytes before an event in which the last time stamp counts as its time
EDGE: Final = 1 << 15  # bytes at the beginning and the end of a log in which steps are looked for
MOST: Final = 64  # events, and logs
LONGEST: Final = 200  # characters of the words of a step
_FRACTION: Final = re.compile(r"\S*\d\.\d")
LEAST_S: Final = 1.0  # ranks print a line at different moments: a smaller difference is none of the clocks
Steps = dict[str, float]  # the words of a step -> when they were printed


def timed(
    events: Sequence[Event],
    ends: Mapping[int, Ended],
    said: Mapping[int, Source],
    files: Mapping[str, LogFile],
    *,
    nodes: Mapping[int, str],
    progress: Sequence[Signature],
) -> tuple[list[Event], dict[int, Ended], dict[str, float]]:
    """Return events and ends with their times by one clock, and how many seconds each other clock is ahead of it.

    Each node has a clock, and each log without a node. `said`: the log with the end of a rank; `nodes`: of each rank.
    """
    roots = [each for each in events if each.signature.role == "root"][:MOST]
    found = {each: at for each in roots if (at := _time(each, files[each.source.name])) is not None}
    stamps = {rank: at for rank, each in ends.items() if (at := _of_end(each)) is not None}
    clocks = {each: _clock(each.source, each.rank, nodes) for each in found}
    behind = {rank: said[rank].node or ends[rank].node or said[rank].name for rank in stamps if rank in said}
    wanted = {*clocks.values(), *behind.values()}
    ahead = _ahead(_steps(files.values(), nodes, progress, wanted)) if len(wanted) > 1 else {}
    by_rank = {rank: at - ahead.get(behind.get(rank, ""), 0.0) for rank, at in stamps.items()}

    def moment(event: Event) -> float | None:
        if event in found:
            return found[event] - ahead.get(clocks[event], 0.0)
        return None if event.rank is None else by_rank.get(event.rank)

    return (
        [each._replace(time=moment(each)) if each.signature.role == "root" else each for each in events],
        {rank: each._replace(time=_word(by_rank[rank])) if rank in by_rank else each for rank, each in ends.items()},
        ahead,
    )


def _clock(source: Source, rank: int | None, nodes: Mapping[int, str]) -> str:
    return source.node or ("" if rank is None else nodes.get(rank, "")) or source.name


def _of_end(end: Ended) -> float | None:
    """Return when a launcher of PyTorch says that a rank ended."""
    with suppress(ValueError):
        return datetime.strptime(end.time, "%Y-%m-%d_%H:%M:%S").astimezone().timestamp()
    return None


def _word(at: float) -> str:
    return f"{datetime.fromtimestamp(at):%Y-%m-%d_%H:%M:%S}"


def _stamp(raw: bytes, latest: float) -> tuple[lines.Line, float | None]:
    line = lines.unlabelled(lines.shown(raw))
    return line, times.find(line.text, latest)


def _time(event: Event, file: LogFile) -> float | None:
    """Return the time of an event: that of its line, or of the last one with a time that this rank wrote before it."""
    if file.is_error_file:
        return file.raised_at()
    with suppress(OSError), file.opened() as opened:
        latest = file.path.stat().st_mtime
        start = opened.seek(max(file.start, event.offset - BEFORE))
        before = opened.read(event.offset - start).split(b"\n")[:-1]
        for raw in (opened.read(lines.LONGEST).partition(b"\n")[0], *reversed(before)):
            line, at = _stamp(raw, latest)
            if at is not None and line.rank in (None, event.rank):
                return at
    return None


def _steps(
    files: Iterable[LogFile], nodes: Mapping[int, str], progress: Sequence[Signature], wanted: set[str]
) -> dict[str, Steps]:
    """Return the steps by clock; those that a rank printed more than once say nothing."""
    found: dict[str, Steps] = defaultdict(dict)
    read = 0
    for file in files:
        if file.is_error_file or (file.source.node and file.source.node not in wanted) or read >= MOST:
            continue
        read += 1
        printed: dict[int | None, list[tuple[str, float]]] = defaultdict(list)
        with suppress(OSError):
            for rank, words, at in _printed(file, progress):
                printed[rank].append((words, at))
        for rank, those in printed.items():
            count = Counter(words for words, _ in those)
            steps = found[_clock(file.source, rank, nodes)]
            for words, at in those:
                if count[words] == 1:
                    steps[words] = min(at, steps.get(words, at))
    return found


def _printed(file: LogFile, progress: Sequence[Signature]) -> Iterator[tuple[int | None, str, float]]:
    """Yield rank, words and time of each step near the beginning and the end of a log. Raises OSError."""
    latest = file.path.stat().st_mtime
    for offset, length in file.parts(2 * EDGE):
        with file.opened() as opened:
            opened.seek(offset)
            for raw in opened.read(length).split(b"\n"):
                line, at = _stamp(raw, latest)
                if at is not None and (words := _step(line.text, progress)):
                    yield line.rank if file.source.rank is None else file.source.rank, words, at


def _step(text: str, progress: Sequence[Signature]) -> str:
    """Return what all ranks print of a step: its words and whole numbers, not the loss; empty for another line."""
    for each in progress:
        if match := each.pattern.search(text):
            begin = text[match.start() :][:LONGEST]
            return f"{_FRACTION.split(begin, maxsplit=1)[0].lower()} {match.groupdict().get('what')}"
    return ""


def _ahead(steps: Mapping[str, Steps]) -> dict[str, float]:
    """Return how far each clock is ahead of the one with the most steps."""
    if not steps:
        return {}
    import statistics  # noqa: PLC0415 - of most failures there is one log

    first = max(sorted(steps), key=lambda each: len(steps[each]))
    found = {}
    for clock, those in steps.items():
        differences = [at - steps[first][words] for words, at in those.items() if words in steps[first]]
        if differences and abs(ahead := statistics.median(differences)) >= LEAST_S:
            found[clock] = ahead
    return found
