"""`slurm-plugin submit` and `forecast`: submit a job spec, or say when its job would start."""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

import click
from msgspec import structs

from slurm_plugin.cli.group import utc_option
from slurm_plugin.cli.nodeside.spec_file import is_search, load_specs, read_file, read_specs, spec_name
from slurm_plugin.cli.specs import (
    config_option,
    edit,
    flags_if_it_can_say,
    say_what_lacks,
    sbatch_flags,
    show_scripts,
    spec_argument,
)
from slurm_plugin.errors import SlurmPluginError, UsageError
from slurm_plugin.records import durations
from slurm_plugin.slurm import Node, Slurm, SlurmDeniedError, SlurmError, Submitted, changes, connect
from slurm_plugin.slurm.resources import Reservation
from slurm_plugin.spec import Spec, policy_language, submit_config
from slurm_plugin.spec.key_types import joined
from slurm_plugin.submit import policy_verdict, submission
from slurm_plugin.submit.forecast import Answer, JobRequest, of_partitions
from slurm_plugin.submit.wrapper import recovery_options


@click.command()
@spec_argument
@config_option
@click.option("--edit", "in_editor", is_flag=True, help="First change the spec in an editor; JOB.yaml stays as it is.")
@click.option("--dry-run", is_flag=True, help="Print the script and submit nothing.")
@click.option("--wait", is_flag=True, help="Follow the job; exit 0 only when it ends COMPLETED.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: one object, with --wait a second one at the end.")
def submit(spec_file: str, config: Path | None, *, in_editor: bool, dry_run: bool, wait: bool, as_json: bool) -> int:
    """Submit JOB.yaml (`-`: the spec on stdin) and print the job id.

    A spec with `search` is submitted as `slurm-plugin experiment submit` does, and the id is that of its array.
    """
    settings = submit_config.load(config)
    data = read_file(spec_file)
    if is_search(data, spec_file):
        if in_editor:
            raise UsageError("--edit: found a search, whose file is kept\n  change the file, then submit it")
        from slurm_plugin.cli import experiment_submit  # noqa: PLC0415 - only for a search

        if wait:
            raise UsageError("--wait: found a search\n  follow it with: slurm-plugin experiment status --watch NAME")
        return experiment_submit.submit_file(spec_file, settings, dry_run=dry_run, as_json=as_json)
    return send(data, spec_file, settings, in_editor=in_editor, dry_run=dry_run, wait=wait, as_json=as_json)


def send(
    data: bytes,
    spec_file: str,
    settings: submit_config.SubmitConfig,
    *,
    in_editor: bool = False,
    dry_run: bool = False,
    wait: bool = False,
    as_json: bool = False,
    of: str = "",
    directory: str = "",
) -> int:
    """Submit the spec in `data`, keep it with the job, and print the job id. Return the exit code.

    `spec_file` names the spec in messages. `of`: the job that this one is a clone of. `directory`: where the spec is
    submitted, if not here.
    """
    load = partial(
        load_specs, spec_file=spec_file, site=settings, known=flags_if_it_can_say if dry_run else sbatch_flags
    )
    if in_editor:
        data = edit(data, load)
    specs = load(data)
    site = submission.here(settings)
    site = structs.replace(site, directory=directory or site.directory)
    jobs = [submission.build(spec, site, spec_name("-" if of else spec_file)) for spec in specs]
    for job in jobs:
        submission.check_policy(job, settings, os.environ)
    say_what_lacks(specs[0], settings)
    if dry_run:
        show_scripts((job.script for job in jobs), as_json=as_json)
        return 0
    if wait and specs[0].array:
        raise UsageError(
            "--wait: found an array; one job can be followed\n  watch its tasks: slurm-plugin jobs --watch"
        )
    submission.check(specs, site, settings)
    logs = partial(submission.log, specs[0], site)
    submission.make_task_directories(specs[0], site)
    door = connect(patience_s=submission.CONTROLLER_AWAY_S)
    made = submission.send_alternatives(jobs, door) if len(jobs) > 1 else (submission.send(jobs[0], door),)
    for each, job in zip(made, jobs, strict=True):
        submission.keep(job, each, data)
    announce(made, as_json=as_json, of=of)
    if specs[0].priority != changes.NORMAL:
        _prioritize(made, specs[0].priority, settings)
    if not wait and (len(jobs) > 1 or not sys.stderr.isatty()):
        return 0
    from slurm_plugin.cli import job_wait  # noqa: PLC0415 - most submissions need none of it

    if not wait:
        click.echo(job_wait.next_commands(made[0], logs(made[0].id)), err=True)
        return 0
    directories = {each: Path(job.directory) for each, job in zip(made, jobs, strict=True)}
    return job_wait.until_end(directories, logs, as_json=as_json)


def _prioritize(made: Sequence[Submitted], word: str, settings: submit_config.SubmitConfig) -> None:
    """Ask for the priority of the spec. The job keeps its place in the queue if the site does not allow it."""
    for job in made:
        try:
            said = changes.change_priority(
                connect().on(job.cluster), job.id, word, policy_language.compiled_priorities(settings.priorities)
            )
            click.echo(f"job {job.name}: {said}", err=True)
        except SlurmPluginError as error:
            click.echo(f"job {job.name} is submitted, and its priority is normal: {error}", err=True)


def announce(made: Sequence[Submitted], *, as_json: bool, of: str = "") -> None:
    """Print the id of a new job, or the ids of alternatives. `of`: the job that they are clones of."""
    form: dict[str, object] = {"any_of": [each.id for each in made]} if len(made) > 1 else {"job": made[0].id}
    form |= {"cluster": made[0].cluster} if made[0].cluster else {}
    form |= {"of": of} if of else {}
    click.echo(json.dumps(form) if as_json else "\n".join(each.name for each in made))


@click.command()
@spec_argument
@config_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, for each alternative one.")
@utc_option
def forecast(spec_file: str, config: Path | None, *, as_json: bool) -> int:
    """Say when JOB.yaml would start, and what delays it. Nothing is submitted; exit 1: it would not start."""
    settings = submit_config.load(config)
    specs = read_specs(spec_file, settings, flags_if_it_can_say)
    site, door = submission.here(settings), connect()
    submission.check_directories(specs[0], site)
    jobs = [(spec, submission.build(spec, site, spec_name(spec_file))) for spec in specs]
    try:
        shown = _shown(door)
        answers = [_answer(spec, job, door, shown) for spec, job in jobs]
    except SlurmError as error:  # without an answer the start is unknown
        raise UsageError(str(error)) from error
    say_what_lacks(specs[0], settings)
    for answer in answers:
        click.echo(json.dumps(answer.record()) if as_json else "\n".join(answer.lines()))
    return int(all(answer.found.start_time is None and not answer.fits for answer in answers))


class Shown(NamedTuple):
    """The nodes and the reservations that Slurm shows to the user. `unseen`: why it shows no nodes."""

    nodes: Mapping[str, Node] = {}
    reservations: Sequence[Reservation] = ()
    unseen: str = ""


def _shown(door: Slurm) -> Shown:
    """Return what Slurm shows to the user. Raise SlurmError if it does not answer."""
    reservations: Sequence[Reservation] = ()
    with suppress(SlurmDeniedError):
        reservations = door.reservations()
    try:
        return Shown(door.nodes([]), reservations)
    except SlurmDeniedError:
        return Shown(reservations=reservations, unseen="this site does not show nodes to users")


def _answer(spec: Spec, job: submission.Submission, door: Slurm, shown: Shown) -> Answer:
    """Return Slurm's answer about one job. Raise SlurmError if it does not answer."""
    found = door.forecast(job.script, arguments=job.arguments, directory=job.directory)
    named = [found.partition or joined(part.partition) for part in spec.components]
    partitions = tuple(dict.fromkeys(filter(None, ",".join(named).split(","))))
    count, least = " + ".join(map(recovery_options.node_count, spec.components)), sum(e.least for e in spec.components)
    options = policy_verdict.jobs(job.script, job.arguments, os.environ)[0]
    if clusters := options.get("clusters"):
        shown = Shown(unseen=f"its nodes: sinfo --clusters={clusters}")
    limit = options.minutes if options.minutes != policy_verdict.UNLIMITED else None
    request = JobRequest(spec.name, count, partitions, limit * 60 if limit else None, least)
    reservations = () if options.get("reservation") else shown.reservations
    nodes = of_partitions(shown.nodes, partitions)
    answer = Answer(request, found, nodes, datetime.now(UTC), reservations, shown.unseen)
    if not (shorter := answer.shorter()):
        return answer
    words = [*job.arguments, f"--time={durations.slurm_time(shorter)}"]
    tried = replace(answer, found=door.forecast(job.script, arguments=words, directory=job.directory))
    return replace(answer, fits=tried.starts_now)
