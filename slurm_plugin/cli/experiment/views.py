"""`slurm-plugin experiment status|trials|best|metrics|logs|export|report`: look at an experiment."""

import csv
import io
import json
import shutil
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from slurm_plugin.cli.experiment import export
from slurm_plugin.cli.nodeside import log_follow, log_lookup, logs, output
from slurm_plugin.cli.nodeside.definition import IN_UTC, JSON, Command, Parameter, coloured
from slurm_plugin.errors import SlurmPluginError, UsageError, printable
from slurm_plugin.experiment import array, journal
from slurm_plugin.experiment.journal import Journal
from slurm_plugin.experiment.metrics import LOG, METRICS
from slurm_plugin.logs import selection, tail
from slurm_plugin.logs.tail import Range
from slurm_plugin.records.experiments import STATES, Trial
from slurm_plugin.records.nearest import suggestion
from slurm_plugin.views.experiment import page, series, text
from slurm_plugin.views.experiment import summary as summaries
from slurm_plugin.views.experiment.series import Series

EVERY_S: Final = 2.0
FIRST_BYTES, LAST_BYTES = 1 << 20, 32 << 20  # that are read of the metrics of a trial
REPORT_FILE: Final = "report.html"  # in the experiment's directory


def _open(word: str) -> Journal:
    """Find an experiment. Raise SlurmPluginError if it does not exist."""
    return Journal(array.find_experiment(word))


def _trial(found: Journal, number: int) -> Trial:
    """Return a trial. Raise SlurmPluginError for an unknown one."""
    trials = found.read().trials
    if not (trial := next((each for each in trials if each.number == number), None)):
        accepted = f"1 to {trials[-1].number}" if trials else "none: no trial has begun"
        raise SlurmPluginError(
            f"found no trial {number}; accepted: {accepted}\n"
            f"  all of them: slurm-plugin experiment trials {printable(str(found.directory))}"
        )
    return trial


def _json(form: object) -> str:
    """Return an object as one line. JSON has no NaN and no infinity: these are null."""
    return json.dumps(json.loads(json.dumps(form), parse_constant=lambda _: None))


def _status(options: Namespace) -> int:
    """Show how an experiment is doing, once or until it is over. Return 1 if all of its trials failed."""
    found = _open(options.experiment)
    watched = options.watch and sys.stdout.isatty() and not options.json
    while True:
        state, now = found.read(), time.time()
        if options.json:
            print(_json({**summaries.form(found.experiment, state, now), "directory": str(found.directory)}))
        else:
            lines = text.status(found.experiment, state, now, on=coloured())
            height = shutil.get_terminal_size().lines
            print(output.screen(lines, height) if watched else "\n".join(lines), flush=True)
        summary = summaries.summary(found.experiment, state, now)
        if not watched or summary.is_over:
            return 1 if summary.state == summaries.FAILED else 0
        time.sleep(EVERY_S)


def _trials(options: Namespace) -> int:
    """Print the trials as a table."""
    found = _open(options.experiment)
    state, now = found.read(), time.time()
    states = (options.state,) if options.state else ()
    some = text.chosen(found.experiment, state, now, sort=options.sort, states=states, limit=options.limit)
    if options.json:
        print(_json({"v": 1, "trials": [summaries.record(found.experiment, each, now) for each in some]}))
    elif some:
        output.show("\n".join(text.table(found.experiment, some, now, on=coloured())))
    else:
        print("no trial" + (f" is {options.state}" if options.state else " has begun"))
    return 0


def _best(options: Namespace) -> int:
    """Print the best trials. Return 1 if no trial has a value."""
    found = _open(options.experiment)
    state, now = found.read(), time.time()
    valued = summaries.with_values(found.experiment, state)
    some = text.chosen(found.experiment, valued, now, sort="value", limit=options.n)
    commands = export.commands(found.directory, found.experiment, some)
    more = {each.number: {**export.of_trial(found.directory, each), "command": commands[each.number]} for each in some}
    if options.json:
        records = [{**summaries.record(found.experiment, each, now), **more[each.number]} for each in some]
        print(_json({"v": 1, "best": records}))
    elif some:
        output.show("\n".join(text.best(found.experiment, some, now, lambda each: more[each.number])))
    else:
        print("no trial has reported a value yet", file=sys.stderr)
    return 0 if some else 1


def _metrics(options: Namespace) -> int:
    """Print what a trial has reported. Return 1 if it has reported nothing."""
    if options.json and options.csv:
        raise UsageError("found --json and --csv; accepted: one of them")
    found = _open(options.experiment)
    trial = _trial(found, options.trial)
    known, metric = _series(found, trial.number), found.experiment.search.metric.name
    if options.name:
        names = {name for _, name in known}
        known = {key: points for key, points in known.items() if key[1] == options.name}
        if not known:
            near = suggestion(options.name, names)
            shown = ", ".join(sorted(map(printable, names))) or "none: it has reported nothing"
            raise SlurmPluginError(f"--name {printable(options.name)}: trial {trial.number} has no such metric{near}\n"
                                   f"  accepted: {shown}")  # fmt: skip
    if options.json:
        print(_json(series.form(trial.number, known)))
    elif options.csv:
        csv.writer(sys.stdout, lineterminator="\n").writerows(series.rows(known))
    elif known:
        output.show("\n".join(series.text(known, options.name or metric, found.experiment.search.unit)))
    if not known and not options.json:
        print(f"slurm-plugin: trial {trial.number} has reported no metric", file=sys.stderr)
    return 0 if known else 1


def _series(found: Journal, number: int) -> Series:
    """Return the metrics of a trial: those that its program wrote, else those that its worker read from the log."""
    own, search = journal.trial_directory(found.directory, number), found.experiment.search
    known = series.read(lines(own / METRICS), search.unit)
    return known or series.read(lines(own / journal.EVENTS), metric=search.metric.name)


def lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file; of a very large one those at its beginning and at its end. None if it is missing."""
    with suppress(OSError):
        with tail.opened(path) as (_, found):
            size = found.st_size
        if size > FIRST_BYTES + LAST_BYTES:
            yield from tail.read(path, Range(0, FIRST_BYTES))
        yield from tail.read(path, Range(max(0, size - LAST_BYTES) if size > FIRST_BYTES + LAST_BYTES else 0, size))


def _logs(options: Namespace) -> int:
    """Show the log of a trial as `slurm-plugin logs` shows that of a job."""
    found = _open(options.experiment)
    trial = _trial(found, options.trial)
    path = journal.trial_directory(found.directory, trial.number) / LOG
    if not path.exists() and not options.follow:
        raise selection.NoLogError(
            f"{path}: trial {trial.number} has no log; it is {trial.state}\n"
            f"  its task's log: slurm-plugin logs {trial.task or 'JOB'}"
        )
    known = log_lookup.of_file(path, trial.job)
    whole = Namespace(**vars(options), worker="", rank=None, attempt=None, merge=False)
    wanted = logs.wanted(whole)
    if not options.follow:
        return logs.show(known, whole, wanted)

    def is_over() -> bool:
        trials = found.read().trials
        return next((each.is_over for each in trials if each.number == trial.number), True)

    return log_follow.until(is_over, known, whole, wanted)


def _export(options: Namespace) -> int:
    """Write all trials for other programs."""
    if sum(map(bool, (options.csv, options.json, options.tensorboard))) > 1:
        raise UsageError("found more than one of --csv, --json and --tensorboard; accepted: one of them")
    found = _open(options.experiment)
    state, now = found.read(), time.time()
    if options.tensorboard:
        if options.output:
            raise UsageError("--output goes with --csv and --json; --tensorboard names its own directory")
        count = export.tensorboard(options.tensorboard, state.trials, lambda number: _series(found, number))
        print(f"written: {count} trials\n  to see them: tensorboard --logdir {printable(str(options.tensorboard))}")
        return 0
    if options.json:
        form = summaries.form(found.experiment, state, now)
        records = [summaries.record(found.experiment, each, now) for each in state.trials]
        content = f"{_json({**form, 'trials': records})}\n"
    else:
        file = io.StringIO()
        csv.writer(file, lineterminator="\n").writerows(summaries.rows(found.experiment, state.trials, now))
        content = file.getvalue()
    output.write(options.output, content)
    return 0


def _report(options: Namespace) -> int:
    """Write the page of an experiment."""
    found = _open(options.experiment)
    state = found.read()
    path = options.output or found.directory / REPORT_FILE
    place = None if path == output.STDOUT else path
    beside = export.page_extras(found.directory, found.experiment, state, place)
    content = page.page(found.experiment, state, time.time(), beside)
    output.write_page(path, content)
    return 0


EXPERIMENT: Final = Parameter("experiment", "An experiment's directory, its name, or its array's job id", "EXPERIMENT")
TRIAL: Final = Parameter("trial", "The number of a trial", "TRIAL", read=selection.number)
_UNKNOWN: Final = "2: wrong usage, or the experiment cannot be read"

STATUS = Command(
    "experiment status",
    "Show how an experiment is doing: the best trial so far, what runs, what is left, and when it is expected to end."
    f"\n\nExit 0: shown; 1: all its trials failed, or there is no such experiment; {_UNKNOWN}.",
    (EXPERIMENT, Parameter("--watch", "On a terminal: show it again every 2 s, until it is over."), JSON, IN_UTC),
    _status,
)
TRIALS = Command(
    "experiment trials",
    f"Show the trials of an experiment as a table.\n\nExit 0: shown; 1: there is no such experiment; {_UNKNOWN}.",
    (
        EXPERIMENT,
        Parameter(
            "--sort",
            f"In this order: {', '.join(text.SORTS)}, or a hyperparameter; -KEY: the other way round.  "
            "[default: number]",
            "KEY",
            "number",
        ),
        Parameter("--state", "Only those in this state.", choices=STATES),
        Parameter("--limit", "At most N trials.", "N", read=selection.number),
        JSON,
    ),
    _trials,
)
BEST = Command(
    "experiment best",
    "Show the best trials of an experiment with their values, logs and checkpoints.\n\n"
    f"Exit 0: shown; 1: no trial has a value, or there is no such experiment; {_UNKNOWN}.",
    (EXPERIMENT, Parameter("--n", "So many trials.  [default: 5]", "N", 5, selection.number), JSON),
    _best,
)
METRICS_OF = Command(
    "experiment metrics",
    "Show what a trial has reported, and its metric over its training.\n\n"
    f"Exit 0: shown; 1: it has reported nothing, or there is no such trial; {_UNKNOWN}.",
    (
        EXPERIMENT,
        TRIAL,
        Parameter("--name", "Only this metric.", "NAME"),
        JSON,
        Parameter("--csv", "Print all values as CSV."),
    ),
    _metrics,
)
LOGS = Command(
    "experiment logs",
    "Show the log of a trial, as `slurm-plugin logs` shows that of a job.\n\n"
    f"Exit 0: shown; 1: there is no such log, or no line matches; {_UNKNOWN}; 130: Ctrl-C.",
    (EXPERIMENT, TRIAL, Parameter("--follow", "Go on until the trial is over."), *logs.LINES),
    _logs,
)
EXPORT = Command(
    "experiment export",
    "Write all trials with their hyperparameters and values for other programs.\n\n"
    f"Exit 0: written; 1: there is no such experiment, or the file cannot be written; {_UNKNOWN}; "
    "3: tensorboard is missing.",
    (
        EXPERIMENT,
        Parameter("--csv", "As CSV, a row for each trial. This is the default."),
        Parameter("--json", "As one JSON object."),
        Parameter("--output", "Into this file.  [default: stdout]", "FILE", read=Path),
        Parameter("--tensorboard", "As event files of TensorBoard with hyperparameters and metrics.", "DIR", read=Path),
    ),
    _export,
)
REPORT = Command(
    "experiment report",
    "Write one HTML page that needs no network: charts, learning curves, what failed and why, a table of all trials."
    f"\n\nExit 0: written; 1: there is no such experiment, or the file cannot be written; {_UNKNOWN}.",
    (
        EXPERIMENT,
        Parameter(
            "--output",
            f"Into this file; -: to stdout.  [default: {REPORT_FILE} of the experiment]",
            "FILE",
            read=Path,
            short="-o",
        ),
    ),
    _report,
)
