"""`submit --wait`: follow submitted jobs to their end."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from slurm_plugin.cli.nodeside import job_lookup, why
from slurm_plugin.errors import INTERRUPTED, SlurmPluginError, printable
from slurm_plugin.records import grant, history, job_directory, progress_file
from slurm_plugin.slurm import ENDED, UNKNOWN, Job, JobNotFoundError, Slurm, SlurmError, Submitted, connect
from slurm_plugin.views import follow

if TYPE_CHECKING:
    from rich.console import Console

RECENT: Final = timedelta(hours=1)  # a followed job has ended within this time: far longer than the pauses
REST: Final = 76  # characters of the status line besides the bar
REVOKED_S: Final = 2.0  # after COMPLETING a node refuses the same job: its revoked credential has whole seconds


def until_end(directories: Mapping[Submitted, Path], logs: Callable[[int], str], *, as_json: bool) -> int:
    """Follow a job, or of alternatives the one that starts, to its end. Return the exit code.

    `directories`: the working directory of each job. `logs` returns the path of a job's output; "" if unknown.
    """
    own = {job: path / job_directory.OURS / str(job.id) for job, path in directories.items()}
    jobs = {job.id: job for job in own}
    ids, door = tuple(jobs), _door(tuple(own))

    def has_run(job_id: int) -> bool:
        return bool(_recorded_end(door, job_id, own[jobs[job_id]]))

    def tell(job_id: int, line: str) -> None:
        click.echo(f"job {job_id}: {line}", err=True)

    found: int | None = ids[0]
    if len(ids) > 1:
        try:
            found = follow.of_several(door, ids, time, has_run, tell=tell, more_than_there_are=why.more_than_there_are)
        except KeyboardInterrupt:
            click.echo(f"they go on; cancel them with: {_scancel(tuple(own))}", err=True)
            return INTERRUPTED
    if found is None:
        if as_json:
            click.echo(json.dumps({"any_of": ids, "state": "PENDING"}))
        click.echo(next_commands(jobs[ids[0]], ""), err=True)
        return 1
    job = jobs[found]
    return _wait(door, job, own[job], logs, as_json=as_json)


def _door(made: Sequence[Submitted]) -> Slurm:
    """Return the door to the cluster that has these jobs. Raise SlurmError if it cannot be queried from here."""
    cluster, door = made[0].cluster, connect()
    if not cluster:
        return door
    try:
        door.on(cluster).jobs([job.id for job in made])
    except SlurmError as error:
        said = str(error).splitlines()[0]
        raise SlurmError(
            f"--wait cannot follow {' '.join(job.name for job in made)} on cluster {cluster}: {said}\n"
            f"  it goes on; follow it on a machine of that cluster, or cancel it: {_scancel(made)}"
        ) from error
    return door.on(cluster)


def _scancel(made: Sequence[Submitted]) -> str:
    """Return the command that cancels jobs of one cluster."""
    return f"scancel {' '.join([made[0].options, *(str(job.id) for job in made[1:])])}"


def next_commands(job: Submitted, path: str) -> str:
    """Return the next commands to try. `path`: the job's output; empty if unknown."""
    see = f"squeue --clusters={job.cluster} --jobs={job.id}" if job.cluster else f"slurm-plugin why {job.id}"
    return "\n".join((*([f"  its output: {path}"] if path else []), f"  how it goes, and why: {see}"))


def _looks(slurm: Slurm, job: Submitted, own: Path) -> Iterator[follow.Look]:
    """Follow a job to its end, also if Slurm forgets it before that was seen (MinJobAge). Name a reservation."""
    reason = ""
    try:
        for look in follow.follow(slurm, job.id, time, why.more_than_there_are, name=job.options):
            before, reason = reason, look.job.reason if look.job else reason
            way = why.reserved(slurm, look.job) if look.job and reason != before else ""
            yield replace(look, changes=(*look.changes, f"{way}; see: scontrol show reservation")) if way else look
    except JobNotFoundError:
        if end := _recorded_end(slurm, job.id, own):
            says = f"{follow.changes(None, end)[-1]}, as recorded: Slurm has forgotten it"
        else:
            says = "Slurm has forgotten it: it has ended, how is not known"
        yield follow.Look(end or Job(job.id, "", UNKNOWN, "", "", "", 0, "", ""), (says,), ended=True)


def _recorded_end(slurm: Slurm, job_id: int, own: Path) -> Job | None:
    """Return how a forgotten job ended, from slurmdbd or its own history in `own`; None if neither has it."""
    with suppress(SlurmError):
        if found := slurm.ended(datetime.now(UTC) - RECENT, job_ids=[job_id]):
            return found[-1].job
    return history.end_of(job_id, job_lookup.attempts(own, job_lookup.cluster(slurm)) or [])


def _wait(slurm: Slurm, submitted: Submitted, own: Path, logs: Callable[[int], str], *, as_json: bool) -> int:
    """Follow a job to its end, and print its changes to stderr. Return 0 for COMPLETED, 130 after Ctrl-C, else 1.

    `own`: the job's directory.
    """
    from rich.console import Console  # noqa: PLC0415 - 50 ms

    console, job_id = Console(stderr=True, highlight=False), submitted.id
    last: follow.Look | None = None
    try:
        with progress(console, job_id, partial(progress_file.recent, own / progress_file.FILE)) as show:
            sooner = _Sooner(slurm)
            for last in _looks(slurm, submitted, own):
                show(last)
                sooner.look(last.job)
    except KeyboardInterrupt:
        click.echo(f"job {job_id} goes on; cancel it with: {_scancel([submitted])}", err=True)
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
    click.echo(next_commands(submitted, path), err=True)
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
) -> Iterator[Callable[[follow.Look], None]]:
    """Yield a function that prints the changes of the job, and on a terminal updates a status line below them.

    `points` returns how far the program is.
    """
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415 - as above
    from rich.text import Text  # noqa: PLC0415 - as above

    def print_changes(look: follow.Look) -> None:
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

        def show(look: follow.Look) -> None:
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
    try:
        return printable(why.answer(str(job_id), slurm, directory).lines[0])
    except SlurmPluginError:
        return ""
