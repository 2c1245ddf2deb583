"""The lines of a job's logs: who wrote each and when, which ones a reader asks for, and several logs as one.

Standard library only. Memory is bounded: whole logs are streamed, and the end of a log is read from its end.
"""

import heapq
import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from slurm_plugin.logs import lines, tail, times
from slurm_plugin.logs.tail import Range

OURS: Final = "slurm_plugin"
SLURM: Final = "slurm"
_SLURMS = re.compile(r"(?:slurm(?:stepd|d|ctld)(?:-[\w.-]+)?|srun|salloc|sbatch|scancel): ")
_ATTEMPT = re.compile(r"\[slurm_plugin\] attempt (\d{1,6}) of job (\d{1,10})\b")
_MARK: Final = f"{lines.OURS}attempt ".encode()
_FURTHER: Final = 8  # how much further back each next step to the wanted lines goes
_NEVER: Final = float("-inf")  # the time of lines before the first time stamp


class Entry(NamedTuple):
    """A line of a log, harmless to a terminal."""

    text: str  # without the prefix of a launcher
    label: str  # the prefix
    rank: int | None  # in the prefix
    system: str  # OURS, SLURM, or empty for a line of the program
    time: float | None  # seconds since 1970; of the line before, if it has none itself


class Wanted(NamedTuple):
    """What a reader asks for."""

    ranks: Collection[int] | None = None  # only lines with one of these ranks in a launcher's prefix
    system: bool = True  # whether lines of slurm_plugin and Slurm are shown
    program: bool = True  # whether other lines are shown
    cutoff: float | None = None  # only lines from this time on
    pattern: re.Pattern[str] | None = None  # only lines that match
    starts: Mapping[int, float] = {}  # attempt -> its start, the time of slurm_plugin's line about it
    timed: bool = False  # whether the times of the lines are needed


class Part(NamedTuple):
    """A part of a file."""

    path: Path
    range: Range
    changed: float  # when the file was last changed
    near: float | None = None  # the time of lines before the first time stamp


class Stream(NamedTuple):
    """The parts of the logs of one speaker, oldest first."""

    speaker: str
    parts: Sequence[Part]
    whole: bool = True  # else only the lines of slurm_plugin and Slurm

    def wanted(self, wanted: Wanted) -> Wanted:
        """Return what a reader asks for of this stream."""
        return wanted if self.whole else wanted._replace(program=False)


def part(path: Path) -> Part:
    """Return a whole file as it is now. Raises OSError."""
    with tail.opened(path) as (_, found):
        return Part(path, Range(0, found.st_size), found.st_mtime)


def of_attempt(whole: Part, job_id: int, attempt: int) -> list[Part]:
    """Return the parts of the job's one log that an attempt wrote, between slurm_plugin's lines about attempts.

    `rerun` writes no such line, and after a requeue the log may have been truncated. So an attempt is what follows its
    line, and attempt 0 also what precedes the first line. Raises OSError.
    """
    begun = [
        (offset, int(found[1]))
        for offset, raw in tail.marks(whole.path, whole.range, _MARK)
        if (found := _ATTEMPT.match(raw.decode("utf-8", "replace"))) and int(found[2]) == job_id
    ]
    if not begun or begun[0][1] == 0:
        begun[:1] = [(whole.range.start, 0)]
    elif begun[0][0] > whole.range.start:
        begun.insert(0, (whole.range.start, begun[0][1] - 1))
    ends = [offset for offset, _ in begun[1:]] + [whole.range.end]
    return [
        whole._replace(range=Range(start, end))
        for (start, number), end in zip(begun, ends, strict=True)
        if number == attempt
    ]


def entry(raw: bytes, latest: float, near: float | None, wanted: Wanted) -> Entry:
    """Return a line. `latest`: when its file was last changed; `near`: the time of the line before."""
    text = harmless(lines.shown(raw))
    line = lines.unlabelled(text)
    system = OURS if line.text.startswith(lines.OURS) else SLURM if _SLURMS.match(line.text) else ""
    time = near
    if wanted.timed:
        found = times.find(line.text, latest, None if near == _NEVER else near)
        if found is None and system == OURS and (begins := _ATTEMPT.match(line.text)):
            found = wanted.starts.get(int(begins[1]))
        time = near if found is None else found if near is None else max(near, found)
    return Entry(line.text, text[: len(text) - len(line.text)], line.rank, system, time)


def harmless(text: str) -> str:
    """Replace characters that could control a terminal, such as C1 codes and those that change the direction."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\t" else "\N{REPLACEMENT CHARACTER}" for char in text)


def entries(part: Part, wanted: Wanted) -> Iterator[Entry]:
    """Yield the wanted lines of a part. Raises OSError."""
    near = part.near
    for raw in tail.read(part.path, part.range):
        found = entry(raw, part.changed, near, wanted)
        near = found.time
        if is_wanted(found, wanted):
            yield found


def is_wanted(found: Entry, wanted: Wanted) -> bool:
    """Return whether a reader asks for this line."""
    return (
        (wanted.ranks is None or found.rank in wanted.ranks)
        and (wanted.system if found.system else wanted.program)
        and (wanted.cutoff is None or found.time is None or found.time >= wanted.cutoff)
        and (wanted.pattern is None or wanted.pattern.search(found.text) is not None)
    )


def newer(stream: Stream, wanted: Wanted) -> Stream:
    """Return the stream from `wanted.cutoff` on, by its time stamps; whole files without any, if they are newer."""
    if wanted.cutoff is None:
        return stream
    kept = []
    for each in stream.parts:
        if each.changed < wanted.cutoff:
            continue

        def time_of(raw: bytes, latest: float = each.changed) -> float | None:
            return entry(raw, latest, None, wanted).time

        found = tail.since(each.path, each.range, wanted.cutoff, time_of)
        if found is None or found is each.range:
            kept.append(each)
        else:
            kept.append(each._replace(range=found, near=_NEVER))
    return stream._replace(parts=kept)


def read(stream: Stream, wanted: Wanted) -> Iterator[Entry]:
    """Yield all wanted lines of a stream. Raises OSError."""
    for each in stream.parts:
        yield from entries(each, stream.wanted(wanted))


def last(stream: Stream, wanted: Wanted, count: int) -> list[Entry]:
    """Return the last `count` wanted lines of a stream. Raises OSError."""
    found: list[Entry] = []
    for each in reversed(stream.parts):
        lacking = count - len(found)
        if lacking <= 0:
            break
        back = lacking
        while True:
            end = tail.last_lines(each.path, each.range, back)
            some = deque(entries(each._replace(range=end), stream.wanted(wanted)), maxlen=lacking)
            if len(some) == lacking or end.start == each.range.start:
                break
            back *= _FURTHER
        found = [*some, *found]
    return found


def merged(streams: Sequence[tuple[str, Iterable[Entry]]]) -> Iterator[tuple[str, Entry]]:
    """Yield the lines of several streams by their times, with the speaker of each."""

    def told(speaker: str, those: Iterable[Entry]) -> Iterator[tuple[str, Entry]]:
        return ((speaker, each) for each in those)

    found = heapq.merge(*(told(*stream) for stream in streams), key=lambda each: _key(each[1]))
    return ((_speaker(speaker, each), each) for speaker, each in found)


def _key(found: Entry) -> float:
    return _NEVER if found.time is None else found.time


def _speaker(stream: str, found: Entry) -> str:
    """Return who speaks: slurm_plugin or Slurm, the rank in a launcher's prefix, or whose log it is."""
    return found.system or (stream if found.rank is None else f"rank {found.rank}")
