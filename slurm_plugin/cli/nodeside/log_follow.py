"""`slurm-plugin logs --follow`: print the lines of a job's logs as they come, over its restarts, to its end."""

import sys
import time
from argparse import Namespace
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from slurm_plugin.cli.nodeside import log_lookup
from slurm_plugin.cli.nodeside.log_lookup import ALL, LAST, Known
from slurm_plugin.logs import reader, tail
from slurm_plugin.logs.reader import Entry, Stream, Wanted
from slurm_plugin.logs.selection import JobLog, NoLogError
from slurm_plugin.slurm import JobNotFoundError, Slurm
from slurm_plugin.views import follow as job_follow

POLL_S: Final = 1.0


class _Voice:
    """A log that is followed."""

    def __init__(self, source: JobLog, start: int, near: float | None) -> None:
        self.stream, self.follower = Stream(source.speaker, ()), tail.Follower(source.path, start)
        self._near = near

    def poll(self, wanted: Wanted, *, final: bool) -> tuple[list[Entry], bool]:
        """Return the wanted lines that are new, and whether the file had grown.

        `final`: also return a last line without a newline.
        """
        before, raws = self.follower.offset, [*self.follower.poll()]
        if final and (rest := self.follower.rest()):
            raws.append(rest)
        found = []
        for raw in raws:
            each = reader.entry(raw, time.time(), self._near, wanted)
            self._near = each.time
            if reader.is_wanted(each, self.stream.wanted(wanted)):
                found.append(each)
        return found, bool(raws) or self.follower.offset != before


class _Reading:
    """A clock for `follow.follow`: while that sleeps, the new lines of the logs are printed."""

    def __init__(self, known: Known, options: Namespace, wanted: Wanted) -> None:
        self._known, self._options, self._wanted = known, options, wanted
        self._voices: dict[Path, _Voice] = {}
        self._several = options.merge
        self.poll(first=True)

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Print what comes for so long."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if not self.poll():
                time.sleep(min(left, POLL_S))

    def poll(self, *, first: bool = False, final: bool = False) -> bool:
        """Print the new lines. Return whether a log has grown. A new attempt may have files of its own."""
        try:
            chosen = log_lookup.chosen(self._known, self._options)
        except NoLogError:  # not yet
            return False
        wanted = self._wanted._replace(ranks=chosen.ranks, timed=True)
        for source in chosen.sources:
            if source.path not in self._voices:
                begin = self._begin(source, wanted) if first else (0, None)
                self._voices[source.path] = _Voice(source, *begin)
            voice = self._voices[source.path]
            voice.stream = voice.stream._replace(whole=chosen.whole(source))
        voices = [self._voices[source.path] for source in chosen.sources]  # a rank's own file replaces the job's log
        polled = [(each.stream.speaker, each.poll(wanted, final=final)) for each in voices]
        streams = [(speaker, those) for speaker, (those, _) in polled]
        self._several |= len({speaker for speaker, _ in streams}) > 1
        for line in log_lookup.text(streams, wanted.pattern, several=self._several):
            print(line)
        sys.stdout.flush()
        return any(grown for _, (_, grown) in polled)

    def _begin(self, source: JobLog, wanted: Wanted) -> tuple[int, float | None]:
        """Return the offset from which a file is shown, and the time of its lines before the first time stamp."""
        try:
            part = reader.part(source.path)
            if wanted.cutoff is not None:
                newer = reader.newer(Stream("", [part]), wanted).parts
                return (newer[0].range.start, newer[0].near) if newer else (part.range.end, None)
            count = LAST if self._options.tail is None else self._options.tail
            shown = part.range if count == ALL else tail.last_lines(part.path, part.range, count)
            return shown.start, None
        except OSError:
            return 0, None


def follow(door: Slurm, known: Known, options: Namespace, wanted: Wanted) -> int:
    """Print the logs while they grow, over restarts, until the job has ended. Return 0."""
    reading = _Reading(known, options, wanted)
    with suppress(JobNotFoundError):
        for look in job_follow.follow(door, known.job_id, reading):
            if look.changes and look.changes[0].startswith("given up"):
                log_lookup.note(look.changes[0])
    return _end(reading)


def until(is_over: Callable[[], bool], known: Known, options: Namespace, wanted: Wanted) -> int:
    """Print the logs while they grow, until their writer is over. Return 0."""
    reading = _Reading(known, options, wanted)
    while not is_over():
        reading.sleep(POLL_S)
    return _end(reading)


def _end(reading: _Reading) -> int:
    """Print what was written last."""
    reading.sleep(2 * POLL_S)  # a file server may show the last lines late
    while reading.poll():
        continue
    reading.poll(final=True)
    return 0
