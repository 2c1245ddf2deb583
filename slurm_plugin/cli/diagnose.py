"""`slurm-plugin diagnose`: why a program failed, from its logs, and what the signatures of failures are."""

import difflib
import json
import os
import sys
import tempfile
from argparse import Namespace
from collections.abc import Callable, Sequence
from itertools import repeat
from pathlib import Path

from slurm_plugin.cli import job_failure
from slurm_plugin.cli.nodeside import job_lookup, output
from slurm_plugin.cli.nodeside.definition import JSON, Command, Parameter, coloured
from slurm_plugin.cli.nodeside.job_lookup import DIRECTORY
from slurm_plugin.errors import UsageError, printable
from slurm_plugin.logs import diagnosis, library, selection
from slurm_plugin.logs.diagnosis import Diagnosis, form
from slurm_plugin.logs.signature import CLASSES, Signature
from slurm_plugin.logs.source import LogFile, copied
from slurm_plugin.records.diagnoses import NO_CAUSE
from slurm_plugin.views import diagnosis as view

TEXTS = ("*.log", "*.out", "*.err", "*.txt")  # of a directory, also as .gz
LOGS = (*TEXTS, *(f"{each}.gz" for each in TEXTS), "*error.json", "*trace_rank_*")
_EMPTY = "{} is empty: it does not tell whether anything failed\n  its end, by Slurm: sacct -j JOB -o State,ExitCode"
LARGE = 64_000_000  # bytes; the progress is shown for more


def _diagnose(options: Namespace) -> int:
    """Diagnose the logs and print the result. Exit 0: a cause; 1: nothing failed; 2: it cannot be told."""
    asked = [options.explain, options.test, options.list or None, options.log or None]
    if sum(each is not None for each in asked) != 1:
        raise UsageError(
            "found no log, or more than one thing to do; accepted: a job, logs, a directory of logs, - for stdin,\n"
            "  or one of --explain ID, --list and --test FILE"
        )
    if getattr(options, "class") and not options.list:
        raise UsageError("--class goes with --list")
    if options.explain is not None:
        return _explain(options)
    if options.test is not None:
        return _test(options)
    if options.list:
        return _list(options)
    found = _of_job(options) if _is_job(options.log) else _of_files(options.log)
    _print(options, form(found), view.lines(found, on=coloured()))
    if found.cause.failure == "none":
        return 2 if found.unread and not found.cause.beside else 1
    return 2 if found.cause.failure in NO_CAUSE else 0


def _is_job(words: Sequence[str]) -> bool:
    """Return whether the words are a job, and not a file with such a name."""
    return len(words) == 1 and job_lookup.is_job(words[0]) and not Path(words[0]).exists()


def _of_job(options: Namespace) -> Diagnosis:
    """Diagnose the logs of a job. Raise UsageError if there are none: then it cannot be told whether it failed."""
    try:
        failure = job_failure.of_job(options.log[0], options.directory, options.attempt)
    except (selection.NoLogError, job_lookup.UnknownJobError) as error:
        raise UsageError(str(error)) from error
    size = sum(min(each.end, each.size()) - each.start for each in failure.files if isinstance(each, LogFile))
    known = failure.known
    if failure.files and not size and known.code is None and not (known.state or known.faults):
        raise UsageError(_EMPTY.format(f"the log of job {options.log[0]}"))
    return diagnosis.of_files(failure.files, library.load(), known=known, told=_progress(size))


def _of_files(words: Sequence[str]) -> Diagnosis:
    """Diagnose files."""
    with tempfile.TemporaryDirectory(prefix="slurm_plugin-") as scratch:
        names = dict(copied(path, Path(scratch)) for name in words for path in _files(name))
        size = sum(path.stat().st_size for path in names)
        if not size and all(map(os.access, names, repeat(os.R_OK))):
            raise UsageError(_EMPTY.format(", ".join(names.values())))
        return diagnosis.of_files(list(names), library.load(), names=names, told=_progress(size))


def _files(name: str) -> Sequence[Path]:
    """Return the logs that a word names. Raises UsageError for one that is not there."""
    path = Path(name)
    if name == "-":
        return [path]
    if path.is_dir():
        if not (found := sorted({each for pattern in LOGS for each in path.rglob(pattern) if each.is_file()})):
            raise UsageError(f"{path}: found no log in it; accepted names: {' '.join(LOGS)}")
        return found
    if not path.exists():
        raise UsageError(f"{path}: found no such file or directory; give a job, logs, their directory, or - for stdin")
    return [path]


def _progress(size: int) -> Callable[[int], None]:
    """Return what is called with the size of each block that was read: it shows how far the reading is."""
    if size < LARGE or not os.isatty(2):
        return lambda _: None
    done = 0

    def told(more: int) -> None:
        nonlocal done
        done += more
        end = "\r" if done < size else "\r\x1b[K"
        print(f"\rreading: {done * 100 // size} % of {size // 1_000_000} MB", end=end, file=sys.stderr, flush=True)

    return told


def _explain(options: Namespace) -> int:
    """Print one signature."""
    known = {each.id: each for each in library.load()}
    if not (found := known.get(options.explain)):
        near = difflib.get_close_matches(options.explain, known, 3)
        hint = f"similar: {', '.join(near)}" if near else "for all of them: slurm-plugin diagnose --list"
        raise UsageError(f"{printable(options.explain)}: found no signature of this id\n  {hint}")
    file = str(library.origin(found.id))
    record = {"v": 1, **view.signature_record(found), "file": file}
    _print(options, record, view.explained(found, file, on=coloured()))
    return 0


def _list(options: Namespace) -> int:
    """Print the signatures."""
    found: list[Signature] = [each for each in library.load() if getattr(options, "class") in ("", None, each.failure)]
    records = {"v": 1, "signatures": [view.signature_record(each) for each in found]}
    _print(options, records, view.listed(found, on=coloured()))
    return 0


def _test(options: Namespace) -> int:
    """Print what is wrong in a file of signatures. Exit 1 if anything is."""
    good, findings = library.check(Path(options.test))
    lines = [f"{options.test}:{each.line}: {'' if each.wrong else 'note: '}{each.text}" for each in findings]
    wrong = any(each.wrong for each in findings)
    if not wrong:
        lines.append(f"{options.test}: {good} signature{'' if good == 1 else 's'}, each matches its example")
    _print(options, {"v": 1, "good": good, "findings": [each._asdict() for each in findings]}, map(printable, lines))
    return 1 if wrong else 0


def _print(options: Namespace, record: object, lines: "Sequence[str] | map[str]") -> None:
    output.show(json.dumps(record) if options.json else "\n".join(lines))


DIAGNOSE = Command(
    "diagnose",
    "Say why a job or program failed, from its logs: the likely cause, who began it, its evidence, and what to do.\n\n"
    "Exit 0: a cause was found; 1: nothing failed; 2: the logs do not tell, or cannot be read. "
    "With --test, 1: the file has errors.",
    (
        Parameter("log", "A job, FILE..., DIRECTORY or - for stdin", "JOB|LOG", nargs="*"),
        Parameter("--attempt", "Of a job: this attempt.  [default: the last]", "N", None, selection.number),
        Parameter("--explain", "Explain a signature, by the id that --json shows.", "ID"),
        Parameter("--list", "List the signatures of failures, slurm_plugin's and the site's."),
        Parameter("--class", "With --list: only those of a class of failures.", choices=tuple(CLASSES)),
        Parameter("--test", "Check a file of signatures, before you add it to the site's.", "FILE"),
        DIRECTORY,
        JSON,
    ),
    _diagnose,
)
