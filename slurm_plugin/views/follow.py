"""Follow a job to its end: poll Slurm and report changes."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from slurm_plugin.errors import printable
from slurm_plugin.records import grant, progress_file, token
from slurm_plugin.records.grant import Grant, is_uncounted
from slurm_plugin.records.history import duration
from slurm_plugin.records.progress_file import Point
from slurm_plugin.slurm import ENDED, WAITING, Job, JobNotFoundError, Slurm, SlurmError
from slurm_plugin.views import reasons

FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 15.0  # at most four calls of the controller a minute
DOUBT_S: Final = 3.0  # EpilogSlurmctld requeues within this time after a run
HOPELESS_LOOKS: Final = 4  # give up after so many polls with the same reason: an admin may fix a setting before
BAR: Final = 24  # characters of a progress bar
SILENCE_S: Final = 600.0  # a restart or a fail-over of the controller takes minutes


class Clock(Protocol):
    """The clock for `follow`, such as the module `time`."""

    def monotonic(self) -> float:
        """Return the seconds of a monotonic clock."""

    def sleep(self, seconds: float, /) -> None:
        """Wait for `seconds`."""


@dataclass(frozen=True, slots=True)
class Look:
    """The result of one poll. `job` is None if Slurm does not answer. `changes` are lines for people."""

    job: Job | None
    changes: tuple[str, ...]
    ended: bool = False


def follow(
    slurm: Slurm,
    job_id: int,
    clock: Clock,
    more_than_there_are: Callable[[Slurm, Job], str] = lambda *_: "",
    *,
    name: str = "",
) -> Iterator[Look]:
    """Poll a job until it ends or can never start, and yield each result. Without changes the pauses grow to 15 s.

    `more_than_there_are` returns why a job with the reason PartitionNodeLimit never starts; "" if it may start. `name`:
    the job for scancel, if that is not its id.

    Raise JobNotFoundError if Slurm forgets the job before its end was seen, and SlurmError after SILENCE_S without an
    answer.
    """
    last: Job | None = None
    doubted: Job | None = None
    changed = answered = clock.monotonic()
    silent, hopeless = False, 0
    while True:
        try:
            job = slurm.job(job_id)
        except JobNotFoundError:
            if doubted is None:
                raise
            job = doubted  # Slurm forgets only a job that has ended
        except SlurmError as error:
            if clock.monotonic() - answered > SILENCE_S:
                raise
            said = printable(f"Slurm does not answer, asking again: {str(error).splitlines()[0]}")
            yield Look(None, () if silent else (said,))
            silent = True
            clock.sleep(LONGEST_PAUSE_S)
            continue
        answered, silent = clock.monotonic(), False
        # A failed run may be requeued a moment later, so only a second poll confirms its end.
        if job.state in ENDED and job.state not in ("COMPLETED", doubted and doubted.state):
            doubted = job
            clock.sleep(DOUBT_S)
            continue
        doubted, told = None, changes(last, job)
        changed = answered if told else changed
        yield Look(job, told, job.state in ENDED)
        if job.state in ENDED:
            return
        same = last is not None and last.reason == job.reason
        hopeless = hopeless * same + 1 if may_never_start(job) else 0
        says = ""
        if hopeless and hopeless % HOPELESS_LOOKS == 0:
            limit = job.reason == reasons.NODE_LIMIT
            says = more_than_there_are(slurm, job) if limit else reasons.says(job.reason)
        if says:
            yield Look(job, (printable(f"given up: {says}; it is still in the queue: scancel {name or job_id}"),))
            return
        last = job
        clock.sleep(min(LONGEST_PAUSE_S, max(FIRST_PAUSE_S, (answered - changed) / 10)))


def may_never_start(job: Job) -> bool:
    """Return whether a pending job may never start. Exclude requeued jobs that the plugin's worker watches."""
    watched = job.restarts and not grant.is_alone(job)
    hopeless = job.reason == reasons.NODE_LIMIT or reasons.is_hopeless(job.reason, job.partition)
    return job.state == "PENDING" and not watched and hopeless


def of_several(
    slurm: Slurm,
    ids: Sequence[int],
    clock: Clock,
    has_run: Callable[[int], bool],
    *,
    tell: Callable[[int, str], None],
    more_than_there_are: Callable[[Slurm, Job], str] = lambda *_: "",
) -> int | None:
    """Wait until one of these alternatives (`any_of`) has started and the others are cancelled. Return the job's id.

    Call `tell` with a job's id and a line for each change of those that wait. `has_run` returns whether a job that
    Slurm has forgotten has run. Return None, after a line for each, if all that are left can never start
    (`more_than_there_are`: as for `follow`). Return the first id if all were cancelled. Raise SlurmError as `follow`
    does.
    """
    answered, hopeless = clock.monotonic(), 0
    last: dict[int, Job] = {}
    while True:
        try:
            jobs = slurm.jobs(ids)
        except SlurmError:
            if clock.monotonic() - answered > SILENCE_S:
                raise
            jobs = {}
        else:
            answered = clock.monotonic()
            waiting = {job.id: job for job in jobs.values() if job.state in WAITING}
            going = [job for job in jobs.values() if job.id not in waiting and job.state != "CANCELLED"]
            if not waiting and len(going) < 2:
                forgotten = (each for each in ids if each not in jobs and has_run(each))
                return going[0].id if going else next(forgotten, ids[0])
            for number, job in waiting.items():
                for line in changes(last.get(number), job):
                    tell(number, line)
            same = [job.reason for job in waiting.values()] == [job.reason for job in last.values()]
            last = waiting
            hopeless = hopeless * same + 1 if not going and all(map(may_never_start, waiting.values())) else 0
            if hopeless and hopeless % HOPELESS_LOOKS == 0:
                says = {
                    number: more_than_there_are(slurm, job)
                    if job.reason == reasons.NODE_LIMIT
                    else reasons.says(job.reason)
                    for number, job in waiting.items()
                }
                if all(says.values()):
                    for number, why in says.items():
                        tell(number, printable(f"given up: {why}; it is still in the queue: scancel {number}"))
                    return None
        clock.sleep(FIRST_PAUSE_S if len(jobs) > 1 else LONGEST_PAUSE_S)


def bar(points: Sequence[Point], width: int = BAR) -> str:
    """Return how far a program is, as `[####....] 1200/2400, 50%, 20 min 0 s left`; "" without a point.

    Without the number of all steps there is no bar, but the time of a step.
    """
    if not points:
        return ""
    newest, left_s = points[-1], progress_file.left_s(points)
    if not newest.of:
        return f"step {newest.text}" + (f", {newest.step_s:.3g} s each" if newest.step_s else "")
    part = min(1.0, newest.step / newest.of)
    done = int(part * width)
    left = "" if left_s is None else f", {duration(left_s)} left"
    return f"[{'#' * done}{'.' * (width - done)}] {newest.text}, {part:.0%}{left}"


def changes(before: Job | None, job: Job) -> tuple[str, ...]:
    """Return the changes of a job between two polls, as lines for people."""
    told = [*_restarts(before, job)]
    if job.excluded and job.excluded != (before.excluded if before else ""):
        told.append(f"left out: {job.excluded}")
    reason = (job.reason if job.state == "PENDING" else "") or (before.reason if before else "")
    if before is None or (job.state, job.nodes, reason) != (before.state, before.nodes, before.reason):
        told.append(_state(job))
    return tuple(map(printable, told))


def _restarts(before: Job | None, job: Job) -> Iterator[str]:
    """Yield the restarts between two polls, with causes. The plugin's worker counts a restart after the requeue."""
    given, had = _given(job), _given(before) if before else None
    if given is None:
        if job.restarts > (before.restarts if before else 0):
            yield f"restart {job.restarts}"
        return
    had = had or Grant()
    if given.again > had.again:
        number = min(had.used, given.used) + given.again - had.again
        yield f"restart {number} of {given.granted}: on nodes that it has, without a requeue"
    if (fresh := given.requeues - had.requeues) > 0:
        whys = [run.why for run in given.runs if run.number <= given.counted][-fresh:] or [given.last]
        for place, why in enumerate(whys, given.used - len(whys) + 1):
            yield f"restart {place} of {given.granted}: {why}"
    if given.last != had.last and given.last.startswith(grant.NO_MORE):
        yield f"error,exiting: {given.last}"
    if _for_another_cause(job) and not (before and _for_another_cause(before)):
        yield "requeued for another cause, which costs no restart"


def _given(job: Job) -> Grant | None:
    """Return the job's grant, including the restarts in place from the job's comment."""
    given, asked = grant.parse(job.admin_comment), token.find(job.comment)
    return given.with_restarts(asked.again) if given and asked else given


def _for_another_cause(job: Job) -> bool:
    """Return whether the job runs again after a requeue that costs no restart."""
    return job.state == "RUNNING" and is_uncounted(job)


def _state(job: Job) -> str:
    if job.state == "PENDING":
        return f"PENDING ({job.reason})" if job.reason else "PENDING"
    if job.state in ENDED:
        code = f" with exit code {job.exit_code}" if job.exit_code else ""
        return f"{job.state}{code or (f' by signal {job.exit_signal}' if job.exit_signal else '')}"
    return f"{job.state} on {job.nodes}" if job.nodes else job.state
