"""`slurm-plugin submit` and `forecast`: submit a job spec, or say when its job would start."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from msgspec import structs

from slurm_plugin.cli.group import utc_option
from slurm_plugin.cli.specs import (
    config_option,
    edit,
    flags_if_it_can_say,
    is_search,
    load_specs,
    read_file,
    read_specs,
    sbatch_flags,
    spec_argument,
    spec_name,
)  # fmt: skip
from slurm_plugin.errors import INTERRUPTED, SlurmPluginError, UsageError, printable
from slurm_plugin.records import grant, history, job_directory
from slurm_plugin.records.series import progress_file
from slurm_plugin.slurm import ENDED, UNKNOWN, Job, JobNotFoundError, Node, Slurm, SlurmError, connect, priority
from slurm_plugin.spec import Spec, priorities, submit_config
from slurm_plugin.spec.key_types import joined
from slurm_plugin.submit import recovery_options, submission
from slurm_plugin.submit.forecast import Answer, JobRequest, of_partitions

if TYPE_CHECKING:
    from rich.console import Console

    from slurm_plugin.views.follow import Look


REVOKED_S: Final = 2.0  # after COMPLETING a node refuses the same job: its revoked credential has whole seconds
RECENT: Final = timedelta(hours=1)  # a followed job has ended within this time: far longer than the pauses
REST: Final = 76  # characters of the status line of `--wait` besides the bar


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
        from slurm_plugin.cli.experiment import submit as experiment_submit  # noqa: PLC0415 - only for a search

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
    if dry_run:
        click.echo("".join(job.script for job in jobs), nl=False)
        return 0
    if wait and specs[0].array:
        raise UsageError(
            "--wait: found an array; one job can be followed\n  watch its tasks: slurm-plugin jobs --watch"
        )
    submission.check(specs, site, settings)
    logs = partial(submission.log, specs[0], site)
    submission.make_task_directories(specs[0], site)
    door = connect(patience_s=submission.CONTROLLER_AWAY_S)
    ids = submission.send_alternatives(jobs, door) if len(jobs) > 1 else (submission.send(jobs[0], door),)
    for job_id, job in zip(ids, jobs, strict=True):
        job_directory.keep(Path(job.directory), job_id, spec=data, script=job.script)
    announce(ids, as_json=as_json, of=of)
    if specs[0].priority != priority.NORMAL:
        _prioritize(ids, specs[0].priority, settings)
    if not wait:
        if len(jobs) == 1 and sys.stderr.isatty():
            click.echo(_next_commands(ids[0], logs(ids[0])), err=True)
        return 0
    own = (Path(job.directory) / job_directory.OURS / str(job_id) for job_id, job in zip(ids, jobs, strict=True))
    return _wait_for_one(dict(zip(ids, own, strict=True)), logs, as_json=as_json)


def _prioritize(ids: Sequence[int], word: str, settings: submit_config.SubmitConfig) -> None:
    """Ask for the priority of the spec. The job keeps its place in the queue if the site does not allow it."""
    for job_id in ids:
        try:
            said = priority.change(connect(), job_id, word, priorities.compiled(settings.priorities))
            click.echo(f"job {job_id}: {said}", err=True)
        except SlurmPluginError as error:
            click.echo(f"job {job_id} is submitted, and its priority is normal: {error}", err=True)


def announce(ids: Sequence[int], *, as_json: bool, of: str = "") -> None:
    """Print the id of a new job, or the ids of alternatives. `of`: the job that they are clones of."""
    form: dict[str, object] = {"any_of": ids} if len(ids) > 1 else {"job": ids[0]}
    click.echo(json.dumps({**form, **({"of": of} if of else {})}) if as_json else "\n".join(map(str, ids)))


def _wait_for_one(own: Mapping[int, Path], logs: Callable[[int], str], *, as_json: bool) -> int:
    """Follow the job, or of alternatives the one that starts. `own`: the directory of each job, by its id."""
    from slurm_plugin.views import follow  # noqa: PLC0415 - only for --wait

    ids, door = tuple(own), connect()

    def has_run(job_id: int) -> bool:
        return bool(_recorded_end(door, job_id, own[job_id]))

    try:
        job_id = ids[0] if len(ids) == 1 else follow.of_several(door, ids, time, has_run)
    except KeyboardInterrupt:
        click.echo(f"they go on; cancel them with: scancel {' '.join(map(str, ids))}", err=True)
        return INTERRUPTED
    return _wait(door, job_id, own[job_id], logs, as_json=as_json)


def _next_commands(job_id: int, path: str) -> str:
    """Return the next commands to try. `path`: the job's output; empty if unknown."""
    return "\n".join(
        (*([f"  its output: {path}"] if path else []), f"  how it goes, and why: slurm-plugin why {job_id}")
    )


def _looks(slurm: Slurm, job_id: int, own: Path) -> Iterator["Look"]:
    """Follow a job to its end, also if Slurm forgets it before that was seen (MinJobAge)."""
    from slurm_plugin.cli.nodeside.why import more_than_there_are  # noqa: PLC0415 - only for --wait
    from slurm_plugin.views import follow  # noqa: PLC0415

    try:
        yield from follow.follow(slurm, job_id, time, more_than_there_are)
    except JobNotFoundError:
        job = _recorded_end(slurm, job_id, own)
        told = [f"{line}, as recorded: Slurm has forgotten it" for line in follow.changes(None, job)] if job else None
        job = job or Job(job_id, "", UNKNOWN, "", "", "", 0, "", "")
        yield follow.Look(job, tuple(told or ["Slurm has forgotten it: it has ended, how is not known"]), ended=True)


def _recorded_end(slurm: Slurm, job_id: int, own: Path) -> Job | None:
    """Return how a forgotten job ended, from slurmdbd or its own history in `own`; None if neither has it."""
    from slurm_plugin.cli.nodeside import job_lookup  # noqa: PLC0415 - only for --wait

    with suppress(SlurmError):
        if found := slurm.ended(datetime.now(UTC) - RECENT, job_ids=[job_id]):
            return found[-1].job
    return history.end_of(job_id, job_lookup.attempts(own, job_lookup.cluster(slurm)) or [])


def _wait(slurm: Slurm, job_id: int, own: Path, logs: Callable[[int], str], *, as_json: bool) -> int:
    """Follow a job to its end, and print its changes to stderr. Return 0 for COMPLETED, 130 after Ctrl-C, else 1.

    `own`: the job's directory.
    """
    from rich.console import Console  # noqa: PLC0415 - 50 ms, only for --wait

    console = Console(stderr=True, highlight=False)
    last: Look | None = None
    try:
        with progress(console, job_id, partial(progress_file.recent, own / progress_file.FILE)) as show:
            sooner = _Sooner(slurm)
            for last in _looks(slurm, job_id, own):
                show(last)
                sooner.look(last.job)
    except KeyboardInterrupt:
        click.echo(f"job {job_id} goes on; cancel it with: scancel {job_id}", err=True)
        return INTERRUPTED
    job = last.job if last else None
    if as_json and job:
        end = {"job": job_id, "state": job.state, "exit_code": job.exit_code, "signal": job.exit_signal}
        click.echo(json.dumps({**end, "restarts": history.restarts(job)}))
    if job and job.state == "COMPLETED":
        return 0
    path = logs(job_id)
    if job and job.state in ENDED:  # else the display has said why it stopped
        if said := _why(slurm, job_id, own.parent.parent):
            click.echo(f"  {said}", err=True)
        if path and not Path(path).exists():
            click.echo(f"  it has no output: there is no {path}", err=True)
            path = ""
    click.echo(_next_commands(job_id, path), err=True)
    return 1


class _Sooner:
    """Ends Slurm's wait of a requeued job, where no site does it. The owner of a job may do so."""

    def __init__(self, slurm: Slurm) -> None:
        self._slurm = slurm
        self._seen: dict[int, float] = {}  # restart count -> when the job was first seen waiting; infinity: done

    def look(self, job: Job | None) -> None:
        """Let the job start if it has left COMPLETING for long enough: before, its nodes refuse it."""
        if not job or job.state != "PENDING" or job.reason != "BeginTime" or not (job.restarts and grant.is_alone(job)):
            return
        if time.monotonic() - self._seen.setdefault(job.restarts, time.monotonic()) < REVOKED_S:
            return
        self._seen[job.restarts] = float("inf")
        try:
            self._slurm.update_job(job.id, StartTime="now")
        except SlurmError as error:
            click.echo(f"job {job.id}: it waits for its start time: {error.one_line}", err=True)


@contextmanager
def progress(
    console: "Console", job_id: int, points: Callable[[], Sequence[progress_file.Point]] = tuple
) -> Iterator[Callable[["Look"], None]]:
    """Yield a function that prints the changes of the job, and on a terminal updates a status line below them.

    `points` returns how far the program is.
    """
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415 - only for --wait
    from rich.text import Text  # noqa: PLC0415

    from slurm_plugin.views import follow  # noqa: PLC0415

    def print_changes(look: "Look") -> None:
        for change in look.changes:
            console.print(Text(f"job {job_id}: {change}"), soft_wrap=True)

    if not console.is_terminal:
        yield print_changes
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        TextColumn("{task.fields[state]}", markup=False, style="bold"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[bar]}", markup=False),
    )
    with Progress(*columns, console=console, transient=True) as status:
        task = status.add_task(f"job {job_id}", total=None, state="submitted", bar="")

        def show(look: "Look") -> None:
            print_changes(look)
            if look.job:
                number = history.restarts(look.job)
                state = f"{look.job.state}, restart {number}" if number else look.job.state
                width = max(4, min(follow.BAR, console.width - REST))
                bar = follow.bar(points(), width) if look.job.state == "RUNNING" else ""
                status.update(task, state=state, bar=bar)

        yield show


def _why(slurm: Slurm, job_id: int, directory: Path) -> str:
    """Return the first line of `slurm-plugin why`; "" if it has no answer. `directory`: where the job runs."""
    from slurm_plugin.cli.nodeside import why  # noqa: PLC0415 - for a job that did not end well

    try:
        return printable(why.answer(str(job_id), slurm, directory).lines[0])
    except SlurmPluginError:
        return ""


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
    try:
        there = door.nodes([])
        answers = [_answer(spec, submission.build(spec, site, spec_name(spec_file)), door, there) for spec in specs]
    except SlurmError as error:  # without an answer the start is unknown
        raise UsageError(str(error)) from error
    for answer in answers:
        click.echo(json.dumps(answer.record()) if as_json else "\n".join(answer.lines()))
    return int(all(answer.found.start_time is None for answer in answers))


def _answer(spec: Spec, job: submission.Submission, door: Slurm, there: Mapping[str, Node]) -> Answer:
    """Return Slurm's answer about one job. Raise SlurmError if it does not answer."""
    found = door.forecast(job.script, arguments=job.arguments, directory=job.directory)
    named = [found.partition or joined(part.partition) for part in spec.components]
    partitions = tuple(dict.fromkeys(filter(None, ",".join(named).split(","))))
    request = JobRequest(spec.name, " + ".join(map(recovery_options.node_count, spec.components)), partitions)
    return Answer(request, found, of_partitions(there, partitions), datetime.now(UTC))
