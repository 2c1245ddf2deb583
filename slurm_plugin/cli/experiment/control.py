"""`slurm-plugin experiment pause|resume|stop|cancel|concurrency|extend|repair|list`."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click

from slurm_plugin.cli.group import json_option
from slurm_plugin.cli.nodeside import job_lookup, output
from slurm_plugin.cli.nodeside.definition import coloured
from slurm_plugin.errors import SlurmPluginError, UsageError, printable
from slurm_plugin.experiment import control, journal
from slurm_plugin.experiment.array import find_experiment, registered
from slurm_plugin.experiment.control import Change
from slurm_plugin.records.experiments import RUNNING, Experiment, State
from slurm_plugin.slurm import Slurm, SlurmAwayError
from slurm_plugin.views.columns import columns, counted
from slurm_plugin.views.experiment import summary, text

INTERRUPTED = "interrupted"  # trials are left, and Slurm has no task for them
# An experiment at the command line: its directory, the directory's name, or its array's job id.
which = click.argument("word", metavar="EXPERIMENT")
Sentence = Callable[[Change, str], str]


@contextmanager
def _answered() -> Iterator[None]:
    """Let the command exit with 2 if Slurm does not answer: whether it has done its part is not known."""
    try:
        yield
    except SlurmAwayError as error:
        raise UsageError(str(error)) from error


def _change(word: str, verb: str, ask: Callable[[Path, Slurm], Change], sentence: Sentence, *, as_json: bool) -> int:
    """Change an experiment, and print what happens now."""
    directory = find_experiment(word)
    with _answered():
        done = ask(directory, job_lookup.door_to_slurm())
    if as_json:
        form: dict[str, Any] = {"v": 1, "experiment": str(directory), "asked": verb, "left": _left(done)}
        array = done.array._asdict() if done.array else {"job": None, "tasks": 0}
        click.echo(json.dumps({**form, "array": array["job"], "tasks": array["tasks"]}))
    else:
        click.echo(f"{printable(done.experiment.name)}: {sentence(done, printable(str(directory)))}")
    return 0


def _left(done: Change) -> int:
    return control.left(done.experiment, done.state)


def _running(done: Change) -> str:
    return counted(sum(each.state == RUNNING for each in done.state.trials), "running trial")


def _goes_on(done: Change, shown: str) -> str:
    """Return who works on what is left."""
    if done.array:
        tasks = counted(done.array.tasks, "task")
        beside = f" beside the {done.at_work} of earlier arrays," if done.at_work else ""
        return f"submitted array {done.array.job}, {tasks}{beside} for {_left(done)} trials"
    if not _left(done):
        return f"no trial of its budget is left\n  more of them: slurm-plugin experiment extend --trials N {shown}"
    refused = f"\n  no further task was submitted: {printable(done.refused)}" if done.refused else ""
    return f"its tasks go on with the {_left(done)} trials that are left{refused}"


def _verb(change: Callable[[Path, Slurm], Change], about: str, sentence: Sentence) -> click.Command:
    """Return the command of a verb that takes nothing but the experiment."""
    name = change.__name__

    @click.command(name, help=about)
    @which
    @json_option
    def command(word: str, *, as_json: bool) -> int:
        return _change(word, name, change, sentence, as_json=as_json)

    return command


pause = _verb(
    control.pause,
    "Begin no trial of EXPERIMENT and start no task until `resume`. Running trials end as they would.",
    lambda done, shown: (
        f"paused; {_running(done)} ending as they would, {_left(done)} left\n"
        f"  go on: slurm-plugin experiment resume {shown}"
    ),
)
resume = _verb(
    control.resume,
    "Go on with EXPERIMENT after `pause`, `stop`, or when its tasks have ended before its budget.\n\n"
    "If its tasks are too few for what is left of the budget, a further array is submitted.",
    _goes_on,
)
stop = _verb(
    control.stop,
    "Begin no new trial of EXPERIMENT. Running trials end as they would.",
    lambda done, shown: (
        f"no new trial begins; {_running(done)} ending as they would\n"
        f"  end them too: slurm-plugin experiment cancel {shown}\n"
        f"  go on: slurm-plugin experiment resume {shown}"
    ),
)
cancel = _verb(
    control.cancel,
    "End all trials of EXPERIMENT now, and remove its tasks from Slurm. Its directory stays.",
    lambda _, shown: f"cancelled\n  what it found: slurm-plugin experiment best {shown}",
)


@click.command()
@which
@click.argument("most", metavar="N", type=click.IntRange(1))
@json_option
def concurrency(word: str, most: int, *, as_json: bool) -> int:
    """Let at most N trials of EXPERIMENT run at once, from now on. Trials that already run go on."""

    def sentence(done: Change, shown: str) -> str:
        tasks = len(done.tasks)
        more = f"slurm-plugin experiment resume {shown}"
        few = f"\n  its array has only {tasks} tasks left; submit the missing ones: {more}"
        return f"{most} trials at once" + (few if 0 < tasks < min(most, _left(done)) else "")

    return _change(
        word, "concurrency", lambda path, door: control.concurrency(path, door, most), sentence, as_json=as_json
    )


@click.command()
@which
@click.option("--trials", required=True, metavar="N", type=click.IntRange(1, 1_000_000), help="How many more.")
@json_option
def extend(word: str, trials: int, *, as_json: bool) -> int:
    """Add N trials to the budget of EXPERIMENT. If its tasks are too few for them, a further array is submitted."""

    def sentence(done: Change, shown: str) -> str:
        budget = f"its budget is {done.state.budget} trials now; "
        if done.state.paused or done.state.stopped:
            return f"{budget}it does not go on before: slurm-plugin experiment resume {shown}"
        return budget + _goes_on(done, shown)

    return _change(word, "extend", lambda path, door: control.extend(path, door, trials), sentence, as_json=as_json)


@click.command()
@which
@json_option
def repair(word: str, *, as_json: bool) -> int:
    """Write the journal of EXPERIMENT anew, from what is left of it and from the trials' directories.

    The old journal is kept beside it. What was changed by `pause`, `extend` and the like is only in the journal.
    """

    directory = find_experiment(word)
    changed, count = control.repair(directory)
    if as_json:
        click.echo(json.dumps({"v": 1, "experiment": str(directory), "trials": count, "changed": changed}))
    else:
        lines = changed or ["nothing was missing"]
        click.echo("\n".join(map(printable, (f"{count} trials", *(f"  {line}" for line in lines)))))
    return 0


@click.command("list")
@json_option
def list_(*, as_json: bool) -> int:
    """List your experiments, the newest first. Those whose directory was removed are left out.

    `interrupted`: trials are left, and Slurm has no task for them; `resume` submits new ones.
    """
    door, now = job_lookup.door_to_slurm(), time.time()
    rows, forms = [("NAME", "STATE", "DONE", "RUNNING", "LEFT", "BEST", "DIRECTORY")], []
    for directory in dict.fromkeys(each.directory for each in registered()):
        try:
            experiment, state = journal.load(directory)
        except SlurmPluginError as error:
            click.echo(f"{printable(str(directory))}: {printable(error.one_line)}", err=True)
            continue
        found = summary.summary(experiment, state, now)
        word = found.state if found.is_over or _has_tasks(directory, experiment, state, door) else INTERRUPTED
        best = text.value(experiment, found.best) if found.best else ""
        running = found.counts[RUNNING]
        cells = (printable(experiment.name), word, str(found.ended), str(running), str(found.left), best)
        rows.append((*cells, printable(str(directory))))
        form = summary.form(experiment, state, now)
        forms.append({**form, "state": word, "directory": str(directory)})
    if as_json:
        click.echo(json.dumps({"v": 1, "experiments": forms}))
    elif forms:
        heads = [("bold",) * len(rows[0]), *[("",) * len(rows[0])] * len(forms)]
        output.show("\n".join(columns(rows, heads, on=coloured())))
    else:
        click.echo("found no experiment; begin with: slurm-plugin experiment submit FILE", err=True)
    return 0


def _has_tasks(directory: Path, experiment: Experiment, state: State, door: Slurm) -> bool:
    """Return whether Slurm has a task for what is left; also if it does not answer, or is not that cluster's."""
    with suppress(SlurmPluginError):
        return not control.left(experiment, state) or bool(control.living(directory, state, door))
    return True
