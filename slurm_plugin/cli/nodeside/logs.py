"""`slurm-plugin logs JOB`: show, search, follow and save the logs of a job, also of one that ended long ago."""

import io
import json
import re
import sys
import time
from argparse import Namespace
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from slurm_plugin.cli.nodeside import job_lookup, log_bundle, log_follow, log_lookup, output, why
from slurm_plugin.cli.nodeside.definition import JSON, Command, Parameter
from slurm_plugin.cli.nodeside.job_lookup import DIRECTORY, JOB
from slurm_plugin.cli.nodeside.log_lookup import ALL, LAST, Known
from slurm_plugin.errors import SlurmPluginError, UsageError, printable
from slurm_plugin.logs import reader, selection
from slurm_plugin.logs.reader import Entry, Stream, Wanted
from slurm_plugin.logs.selection import JobLog
from slurm_plugin.records import durations
from slurm_plugin.slurm import Slurm
from slurm_plugin.views import log, why_node

LARGE: Final = 1 << 20  # bytes of logs that are shown whole
LARGE_FOR_A_PAGER: Final = 64 << 20  # it keeps all of it in memory
MOST_LINES: Final = 9  # digits


def _logs(options: Namespace) -> int:
    """Show the logs, list or save them, depending on the options."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a log may have characters that the terminal's encoding lacks
    if options.follow and (options.attempt is not None or options.save):
        raise UsageError("--follow: found it with --attempt or --save; it shows the attempt that runs: leave that out")
    if options.save and (options.worker or options.rank is not None or options.attempt is not None):
        raise UsageError("--save: found it with --worker, --rank or --attempt; it saves all logs: leave that out")
    door = job_lookup.door_to_slurm()
    known = log_lookup.find(options.job, options.directory, door)
    if options.save:
        logs = [each.path for each in known.files()]
        saved = log_bundle.save(options.save, known.job_id, known.directory, logs, _reports(known, door))
        left = [str(path) for path in log_bundle.left_out(logs)]
        for path in left:
            log_lookup.note(f"left out: {path}: it is a link, or cannot be read")
        record = {"v": 1, "job": known.job_id, "saved": str(saved), "left_out": left}
        print(json.dumps(record) if options.json else f"saved: {saved}")
        return 0
    if options.json:
        print(json.dumps({"v": 1, "job": known.job_id, "files": [_form(each) for each in known.files()]}))
        return 0
    lines = wanted(options)._replace(starts=log_lookup.starts(known.attempts))
    return log_follow.follow(door, known, options, lines) if options.follow else show(known, options, lines)


def wanted(options: Namespace) -> Wanted:
    """Return which lines the options ask for."""
    return Wanted(
        system=not options.no_system,
        cutoff=None if options.since is None else time.time() - options.since,
        pattern=options.grep,
    )


def _reports(known: Known, door: Slurm) -> dict[str, str]:
    """Return what `why` says of the job, as a file's name and text; nothing if it cannot tell."""
    with suppress(SlurmPluginError):
        answer = why.answer(str(known.job_id), door, known.directory.parents[1])
        return {"why.json": json.dumps(why_node.form(answer)) + "\n"}
    return {}


def _form(source: JobLog) -> dict[str, Any]:
    """Return a file for --json."""
    try:
        size: int | None = source.path.stat().st_size
    except OSError:
        size = None
    return {**source._asdict(), "path": str(source.path), "size": size}


def show(known: Known, options: Namespace, wanted: Wanted) -> int:
    """Print the end of the logs, or the lines that match. Return 1 if none matches."""
    chosen = log_lookup.chosen(known, options)
    streams = selection.streams(chosen, known.job_id, options.attempt)
    wanted = wanted._replace(ranks=chosen.ranks, timed=len(streams) > 1 or wanted.cutoff is not None)
    streams = [reader.newer(each, wanted) for each in streams]
    count = options.tail
    total = sum(each.range.end - each.range.start for stream in streams for each in stream.parts)
    small = count is not None or total <= LARGE_FOR_A_PAGER
    paged = wanted.pattern is not None and sys.stdout.isatty() and small
    shown = wanted._replace(pattern=None) if paged else wanted
    if count is None:
        whole = total <= LARGE or wanted.pattern is not None
        count = ALL if whole else LAST
        if not whole:
            log_lookup.note(f"the last {LAST} lines of {log.size(total)}; to see all: --tail all")
    tails = [_pruned(stream, shown, count) for stream in streams]
    lines: Iterable[str] = log_lookup.text(tails, wanted.pattern, several=len(tails) > 1 or options.merge)
    if len(tails) > 1 and count != ALL:
        lines = deque(lines, maxlen=count)
    if paged and wanted.pattern is not None:
        return _page(lines, wanted.pattern)
    printed = False
    for each in lines:
        print(each)
        printed = True
    if chosen.ranks is not None and not printed and wanted.pattern is None:
        raise selection.NoLogError(
            f"found no line of that rank or node in the log of job {known.job_id}: no rank is before its lines\n"
            "  for the next job, in its spec: logs: {per: both}, or {label: yes}"
        )
    if wanted.pattern is not None and not printed:
        log_lookup.note(f"found no line that matches {printable(wanted.pattern.pattern)!r}")
        return 1
    return 0


def _pruned(stream: Stream, wanted: Wanted, count: int) -> tuple[str, Iterable[Entry]]:
    return stream.speaker, reader.read(stream, wanted) if count == ALL else reader.last(stream, wanted, count)


def _page(lines: Iterable[str], pattern: re.Pattern[str]) -> int:
    """Show the lines in the user's pager at the first match. Return 1 if none matches."""
    matched = False

    def searched() -> Iterator[str]:
        nonlocal matched
        for each in lines:
            matched = matched or pattern.search(each) is not None
            yield each

    output.page(searched(), partial(log.pager, pattern=pattern.pattern))
    return 0 if matched else 1


def _count(text: str) -> int:
    """Parse the value of --tail. Raises ValueError."""
    if text == "all":
        return ALL
    if not text.isascii() or not text.isdecimal() or len(text) > MOST_LINES:
        raise ValueError("a number of lines, or all")
    return int(text)


def _pattern(text: str) -> re.Pattern[str]:
    """Parse the value of --grep. Raises ValueError."""
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"a regular expression: {error}") from error


# What the logs of a job and of a trial have in common.
LINES: Final = (
    Parameter("--tail", "The last N lines; all: everything.", "N", read=_count),
    Parameter("--grep", "Only lines that match this regular expression.", "REGEX", read=_pattern),
    Parameter("--no-system", "Leave out the lines of slurm_plugin and Slurm."),
    Parameter("--since", "Only lines of the last 10m, 2h, 1d, by their time stamps.", "TIME", read=durations.seconds),
)
LOGS = Command(
    "logs",
    "Show the logs of a job: the last part of large ones, searched with --grep, by time with --merge.\n\n"
    "On a terminal --grep opens a pager at the first match; elsewhere, and of large logs, it prints the lines "
    "that match.\n\n"
    "Exit 0: they are shown; 1: there is no such log, or no line matches; 2: wrong usage, or Slurm did not answer; "
    "130: Ctrl-C.",
    (
        JOB,
        Parameter("--worker", "Only the log of this worker: worker-1, or a node's name.", "WORKER", ""),
        Parameter("--rank", "Only what this rank wrote.", "N", read=selection.number),
        Parameter("--attempt", "Only this attempt, from 0.", "N", read=selection.number),
        Parameter("--follow", "Go on until the job has ended, over its restarts."),
        *LINES,
        Parameter("--merge", "The job's log and those of its ranks or nodes by time, with who speaks."),
        Parameter("--save", "Write all logs and records to a directory or a FILE.tar.gz.", "PATH", read=Path),
        JSON._replace(help="Print the list of the files as one JSON object."),
        DIRECTORY,
    ),
    _logs,
)
