"""What a trial's program reports: lines of `metrics.jsonl`, and with a regex the values in its log.

A line is `{"kind": "validation", "step": 100, "metrics": {"loss": 0.3}}`, or flat: `{"loss": 0.3, "step": 100}`. The
user owns both files: they may be replaced or truncated, binary, or have lines of any length. Standard library only.
"""

import json
import math
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from slurm_plugin.experiment.log_values import LogValues
from slurm_plugin.records.experiments import Search

METRICS: Final = "metrics.jsonl"
LOG: Final = "log"
MOST_BYTES: Final = 64 << 20  # of a file in one call
LONGEST_LINE: Final = 1 << 20  # of a longer line only its end is read, which is no JSON
LONGEST_NAME: Final = 255  # bytes of a checkpoint's name: NAME_MAX
_CHUNK: Final = 1 << 20
Event = dict[str, Any]


class Tail:
    """Reads the lines that were appended to a file since the last call."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        """Begin at `offset`."""
        self.path, self.offset = path, offset  # the offset of the first line that is not complete
        self.at_end = True  # whether the last call read the whole file
        self._file: tuple[int, int] | None = None

    def lines(self, *, last: bool = False) -> Iterator[bytes]:
        """Yield the new complete lines, of at most MOST_BYTES. `last`: also yield the incomplete one at the end."""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return
        try:
            found = os.fstat(fd)
            if stat.S_ISREG(found.st_mode):
                yield from self._read(fd, found, last=last)
        finally:
            os.close(fd)

    def _read(self, fd: int, found: os.stat_result, *, last: bool) -> Iterator[bytes]:
        file = found.st_dev, found.st_ino
        if found.st_size < self.offset or self._file not in (None, file):
            self.offset = 0
        self._file, at, rest = file, self.offset, b""
        end = min(found.st_size, at + MOST_BYTES)
        self.at_end = end == found.st_size
        while at < end and (piece := os.pread(fd, min(_CHUNK, end - at), at)):
            at += len(piece)
            *lines, rest = (rest + piece).split(b"\n")
            rest = rest[-LONGEST_LINE:]
            for line in lines:
                self.offset += len(line) + 1
                yield line
            self.offset = at - len(rest)
        if last and rest and self.at_end:
            self.offset = at
            yield rest


class Metrics:
    """The events of a trial, from its files: `report`, `checkpoint`, `invalid` and `start`, each with its time."""

    def __init__(
        self, directory: Path, search: Search, events: Iterator[Mapping[str, Any]], say: Callable[[str], None] = print
    ) -> None:
        """Continue after `events`, those that were read in earlier runs of this trial. Raise re.error."""
        self._search, self._metric = search, search.metric
        self._values = LogValues(search.metric.regex, say) if search.metric.regex else None
        self._time = 0.0  # of the last report
        read = {METRICS: 0, LOG: 0}
        for event in events:
            place, far = event.get("read"), event.get("time")
            if isinstance(place, list) and len(place) == 2 and place[0] in read and type(place[1]) is int:
                read[place[0]] = max(place[1], 0)
            if event["e"] == "report" and type(far) is float and math.isfinite(far):
                self._time = max(self._time, far)
        self._tails = [Tail(directory / METRICS, read[METRICS])]
        self._tails += [Tail(directory / LOG, read[LOG])] if self._values else []

    @property
    def at_end(self) -> bool:
        """Whether the last call read all there was."""
        return all(each.at_end for each in self._tails)

    def new(self, *, last: bool = False) -> list[Event]:
        """Return the events since the last call. `last`: no more will be written."""
        found = []
        for tail in self._tails:
            lines = ((line, tail.offset) for line in tail.lines(last=last))
            events: Iterable[tuple[Event | None, int]]
            if self._values and tail.path.name == LOG:
                events = ((self._report(self._time + 1, value), at) for value, at in self._values.of(lines))
            else:
                events = ((self._in_metrics(line), at) for line, at in lines)
            found += [{**event, "read": [tail.path.name, at]} for event, at in events if event]
        return found

    def _in_metrics(self, line: bytes) -> Event | None:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            return None
        if not isinstance(found, dict):
            return None
        kind, named = found.get("kind", "validation"), found.get("metrics")
        values = named if isinstance(named, dict) else found
        if kind == "validation" and self._metric.name in values and not self._values:
            value = _number(values[self._metric.name])
            return None if value is None else self._report(self._far(found, values, self._time + 1), value)
        if kind == "checkpoint" and is_name(found.get("name")):
            return {"e": "checkpoint", "name": found["name"], "time": self._far(found, values, self._time)}
        if kind == "invalid_hp":
            return {"e": "invalid", "why": str(found.get("why", ""))[:200]}
        return {"e": "start"} if kind == "start" and found.get("api") == 1 else None

    def _far(self, line: Mapping[str, Any], values: Mapping[str, Any], other: float) -> float:
        """Return how far the trial had trained, in the unit of the search."""
        unit = self._search.unit
        found = (_number(each) for each in (line.get(unit, ""), values.get(unit, ""), line.get("step", "")))
        return next((each for each in found if each is not None and math.isfinite(each)), other)

    def _report(self, far: float, value: float) -> Event:
        self._time = max(self._time, far)
        return {"e": "report", "time": far, "value": value if math.isfinite(value) else None}


def is_name(name: object) -> bool:
    """Return whether this is a name of a checkpoint: of a visible entry of a directory."""
    if not isinstance(name, str) or not name.isprintable() or name.startswith(".") or "/" in name:
        return False
    return 0 < len(name.encode()) <= LONGEST_NAME


def _number(value: object) -> float | None:
    """Return a number of JSON; NaN for null, which writers make of NaN. None for any other value."""
    if value is None:
        return math.nan
    if type(value) not in (int, float):
        return None
    try:
        return float(value)  # type: ignore[arg-type]
    except OverflowError:
        return math.inf
