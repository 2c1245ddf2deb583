"""`slurm-plugin experiment submit` and `preview`, and `submit` of a spec with `search`."""

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from msgspec import structs

from slurm_plugin import templates
from slurm_plugin.cli.group import json_option
from slurm_plugin.cli.nodeside.spec_file import load_specs, read_file, spec_name
from slurm_plugin.cli.specs import config_option, flags_if_it_can_say, say_what_lacks, sbatch_flags, show_scripts
from slurm_plugin.errors import SlurmPluginError, UsageError, printable
from slurm_plugin.experiment import array, journal
from slurm_plugin.experiment.array import Array
from slurm_plugin.experiment.file import loader
from slurm_plugin.experiment.searchers import libraries, make
from slurm_plugin.experiment.simulate import preview as planned
from slurm_plugin.records.experiments import SOURCE, Experiment
from slurm_plugin.slurm import connect, own_name
from slurm_plugin.slurm.resources import Limit
from slurm_plugin.spec import Spec, one, submit_config
from slurm_plugin.spec.record import ARRAY_OUTPUT
from slurm_plugin.spec.sbatch_flags import Known
from slurm_plugin.spec.submit_config import SubmitConfig
from slurm_plugin.submit import render, submission
from slurm_plugin.views.columns import columns
from slurm_plugin.views.experiment import text

file_argument = click.argument("file", metavar="FILE", type=click.Path(dir_okay=False, allow_dash=True))
directory_option = click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="The experiment's directory: a new or an empty one.  [default: NAME in the job's directory]",
)


@click.command()
@file_argument
@config_option
@directory_option
@click.option("--dry-run", is_flag=True, help="Print the script and submit nothing.")
@json_option
def submit(file: str, config: Path | None, directory: Path | None, *, dry_run: bool, as_json: bool) -> int:
    """Submit FILE: an experiment file, or a job spec with `search`. Print the id of its array job.

    Each task of the array takes a trial when it starts, and the next one when that has ended.
    """
    return submit_file(file, submit_config.load(config), directory, dry_run=dry_run, as_json=as_json)


def submit_file(
    file: str, settings: SubmitConfig, directory: Path | None = None, *, dry_run: bool, as_json: bool
) -> int:
    """Submit the experiment in a file."""
    if file == "-":
        raise UsageError("-: found a search on stdin; accepted: a file, which the experiment keeps")
    door = connect(patience_s=submission.CONTROLLER_AWAY_S)
    known = flags_if_it_can_say if dry_run else sbatch_flags
    nodes = None if dry_run else lambda: door.nodes([]).values()
    data = read_file(file)
    experiment, job, wanted, parent = loader.load(Path(file), settings, nodes=nodes, known=known)
    make(experiment.search)  # raises MissingError for a missing library
    if libraries.any_in(experiment.search):
        settings = structs.replace(settings, command="")  # the deployed slurm-plugin has no packages; this one has
    trials, found = array.in_all(experiment), list[Limit]()
    if not dry_run:
        found = array.limits(door, own_name(), str(job.get("account", "")), str(job.get("qos", "")))
    tasks = array.size(trials, found)
    spec = _spec(job, file, settings, array.words(tasks, experiment.search.concurrent), known)
    site, source = submission.here(settings), spec_name(file)
    workdir = Path(render.working_directory(spec, site))
    directory, above = directory or (workdir / wanted if wanted else None), workdir / parent
    say_what_lacks(spec, settings)
    if dry_run:
        there = (directory or above / spec.name).absolute()
        show_scripts([_submission(spec, site, there, source).script], as_json=as_json)
        return 0
    submission.check_policy(_submission(spec, site, workdir, source), settings, os.environ)
    submission.check([spec], site, settings)
    with array.new_directory(directory, above, spec.name) as made:
        script = _submission(spec, site, made, source).script
        (made / SOURCE).write_bytes(data)
        (made / array.SCRIPT).write_text(script, encoding="utf-8")
        (made / array.TASKS).mkdir()
        journal.create(made, experiment)
        done = array.submit(made, script, tasks, experiment.search.concurrent, door)
    _say(experiment, made, done, trials, found, as_json=as_json)
    return 0


def _spec(job: Mapping[str, Any], file: str, settings: SubmitConfig, tasks: str, known: Known) -> Spec:
    """Return the spec of the array's tasks. Raise UsageError for a key that no array has."""
    found = load_specs(json.dumps({**job, "array": tasks}).encode(), file, settings, known)
    return one(found, file)


def _submission(spec: Spec, site: render.Site, directory: Path, source: str) -> submission.Submission:
    """Return the submission of an experiment in `directory`. A log that the user names stays as it is."""
    if "%" in str(directory):
        raise UsageError(
            f"{printable(str(directory))}: found %; in the path of a log sbatch reads a pattern\n"
            "  choose a directory without it: --directory DIR"
        )
    if spec.output == ARRAY_OUTPUT:
        spec = structs.replace(spec, output=str(directory / array.LOG))
    made = submission.build(spec, structs.replace(site, experiment=str(directory)), source)
    if "experiment work" not in made.script:
        raise SlurmPluginError(
            f"the site's template job/{spec.mode}.sh.j2, or one that it extends, has no line for experiments\n"
            f"  compare it with ours: {templates.templates_directory() / 'job' / 'base.sh.j2'}"
        )
    return made


def _say(
    experiment: Experiment, directory: Path, done: Array, trials: int, found: Sequence[Limit], *, as_json: bool
) -> None:
    """Print the array's id; on a terminal also the directory, the number of tasks, and the commands to try."""
    for note in experiment.notes:
        click.echo(f"note: {printable(note)}", err=True)
    if as_json:
        form = {"v": 1, "experiment": str(directory), "array": done.job, "tasks": done.tasks, "trials": trials}
        click.echo(json.dumps({**form, "notes": list(experiment.notes)}))
        return
    click.echo(str(done.job))
    if not sys.stderr.isatty():
        return
    shown = printable(str(directory))
    least = min(found, default=None)
    why = f", as {least.text}" if least and done.tasks == least.most < trials else ""
    few = f"{done.tasks} tasks{why}; a task takes several trials" if done.tasks < trials else f"{done.tasks} tasks"
    click.echo(
        f"  {printable(experiment.name)}: {trials} trials, {few}\n  its directory: {shown}\n"
        f"  how it goes: slurm-plugin experiment status {shown}\n"
        f"  the best so far: slurm-plugin experiment best {shown}\n"
        f"  more at once: slurm-plugin experiment concurrency {shown} N",
        err=True,
    )


@click.command()
@file_argument
@config_option
@json_option
def preview(file: str, config: Path | None, *, as_json: bool) -> int:
    """Say how many trials of FILE will train how long, and what of it has no meaning on Slurm. Nothing is submitted."""
    form = planned(loader.load(Path(file), submit_config.load(config), program=False).experiment)
    click.echo(json.dumps(form) if as_json else "\n".join(_shown(form)))
    return 0


def _shown(form: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a preview."""
    unit, most = printable(form["unit"]), form["max_length"]
    names = " and ".join(form["algorithms"])
    yield f"{printable(form['name'])}: {names}; {text.better(form['metric'], smaller=form['smaller_is_better'])}"
    at_once = f", {form['concurrent']} at once" if form["concurrent"] else ""
    length = f"; a trial trains at most {most:,} {unit}" if most else "; a trial runs until its program ends"
    yield f"  {form['trials']:,} {'trial' if form['trials'] == 1 else 'trials'}{at_once}{length}"
    if form["grid"]:
        yield "  the grid:"
        yield from (f"    {printable(name)}: {printable(str(values))}" for name, values in form["grid"].items())
    if form["brackets"]:
        rows = [("  BRACKET", "TRIALS", "AT ONCE", "RUNGS")]
        for number, each in enumerate(form["brackets"], 1):
            rungs = " ".join(map(str, each["rungs"]))
            rows.append((f"  {number}", str(each["trials"]), str(each["concurrent"]), rungs))
        yield from columns(rows)
    if most:
        lengths = [(f"  {each['length']:,} {unit}", f"{each['trials']:,}") for each in form["lengths"]]
        yield from columns([("  LENGTH", "TRIALS"), *lengths]) if len(lengths) > 1 else ()
        least, total = form["total_length"]["least"], form["total_length"]["most"]
        yield f"  all trials together: {total:,} {unit}" + (f", at least {least:,}" if least < total else "")
    yield from (f"  note: {printable(note)}" for note in form["notes"])
