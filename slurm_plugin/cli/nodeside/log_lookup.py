"""Find the logs of the job that a command names, and print their lines."""

import os
import re
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from slurm_plugin.cli.nodeside import job_lookup
from slurm_plugin.cli.nodeside.definition import coloured
from slurm_plugin.errors import UsageError
from slurm_plugin.logs import reader, selection
from slurm_plugin.logs.reader import Entry
from slurm_plugin.logs.selection import Choice, JobLog, NoLogError
from slurm_plugin.records import job_directory, log_files
from slurm_plugin.records.log_files import Output
from slurm_plugin.slurm import Slurm, SlurmError
from slurm_plugin.views import log

LAST: Final = 1000  # lines of large logs, and of those that are followed
ALL: Final = sys.maxsize


class Known(NamedTuple):
    """What is known of a job and its logs."""

    job_id: int
    directory: Path  # the job's own
    attempts: Sequence[Mapping[str, Any]]
    slurms: tuple[str, str]  # the paths of its stdout and stderr, as Slurm knows them

    def hosts(self) -> dict[int, selection.Hosts]:
        """Return attempt -> its nodes."""
        return selection.hosts(self.directory, self.attempts)

    def files(self) -> list[JobLog]:
        """Return the files with the job's logs as they are now."""
        output = log_files.output(self.directory) or Output(stderr=self.slurms[1])
        output = output._replace(stdout=output.stdout or self.slurms[0])
        return selection.of_job(self.directory, self.job_id, output, self.hosts())


def find(word: str, directory: Path, door: Slurm) -> Known:
    """Find a job by Slurm, or by the records in `directory`. Raise NoLogError if neither knows its logs."""
    slurms = ("", "")
    try:
        advice = "accepted is one of its tasks: {tasks}"
        job_id = job_lookup.one_job(word, door, directory, UsageError, advice)
        own = (job_lookup.work_directory(door, job_id) or directory) / job_directory.OURS / str(job_id)
        with suppress(SlurmError):
            slurms = door.output(job_id), door.errors(job_id)
    except SlurmError:  # a controller that is away does not hide a log
        if (found := job_lookup.recorded(word, directory)) is None:
            raise
        job_id, own = found, directory / job_directory.OURS / str(found)
    attempts = job_directory.attempts(own, job_lookup.cluster(door)) or []
    known = Known(job_id, own, attempts, slurms)
    if not known.files():
        raise NoLogError(
            f"the logs of job {job_id} are not known: Slurm does not tell of them, nor does {own}\n"
            f"  try in its working directory, or: slurm-plugin logs {word} --directory DIR"
        )
    return known


def of_file(path: Path, job_id: int) -> Known:
    """Return a log of one file, which has no records beside it."""
    return Known(job_id, Path(os.devnull), (), (str(path), ""))


def starts(attempts: Sequence[Mapping[str, Any]]) -> dict[int, float]:
    """Return attempt -> its start, in seconds since 1970. Skip what is malformed: the user owns the file."""
    found = {}
    for each in attempts:
        with suppress(ValueError, TypeError, LookupError, OverflowError):
            found[int(each["n"])] = datetime.fromisoformat(str(each["start"])).timestamp()
    return found


def chosen(known: Known, options: Namespace) -> selection.Chosen:
    """Return the files that the options ask for. Raise NoLogError if the job has no log of that worker."""
    choice = Choice(options.worker, options.rank, options.attempt, options.merge)
    return selection.choose(known.files(), choice, known.hosts())


def text(
    streams: Sequence[tuple[str, Iterable[Entry]]], pattern: re.Pattern[str] | None, *, several: bool
) -> Iterator[str]:
    """Yield the lines as text, of several logs by their times and with a column for who speaks."""
    on = coloured()
    if not several:
        return (log.line(each, on=on, pattern=pattern) for _, those in streams for each in those)
    width = max([len(reader.OURS), *(len(speaker) for speaker, _ in streams)])
    return (log.speaker_line(speaker, each, width, on=on, pattern=pattern) for speaker, each in reader.merged(streams))


def note(line: str) -> None:
    """Print a line for the user beside the logs."""
    print(f"slurm-plugin: {line}", file=sys.stderr)
