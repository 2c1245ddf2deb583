"""Follow a job to its end: ask the door now and then, and say what changed."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from slurm_plugin import grant
from slurm_plugin.after_run import WAITING
from slurm_plugin.errors import printable
from slurm_plugin.slurm import ENDED, Job, JobNotFoundError, Slurm, SlurmError

FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 15.0  # of a controller's time, a minute of waiting is worth four questions
DOUBT_S: Final = 3.0  # a requeue by EpilogSlurmctld follows the end of a run within this
SILENCE_S: Final = 600.0  # how long a controller may be away: a restart or a fail-over takes minutes


class Clock(Protocol):
    """Time, as a port."""

    def now(self) -> float:
        """Seconds since any fixed moment; never goes back."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class SystemClock:
    """The machine's own."""

    def now(self) -> float:
        """Seconds since boot or so."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


@dataclass(frozen=True, slots=True)
class Look:
    """One look at a job. `job` is None while Slurm does not answer; `changes` are lines for people."""

    job: Job | None
    changes: tuple[str, ...]
    ended: bool = False


def follow(slurm: Slurm, job_id: int, clock: Clock) -> Iterator[Look]:
    """Look at a job until it has ended. Pauses grow from 1 s to 15 s while nothing changes.

    Raises JobNotFoundError where Slurm forgot the job before its end was seen, SlurmError where it was silent for
    ten minutes.
    """
    last: Job | None = None
    changed = answered = clock.now()
    silent, doubted = False, ""
    while True:
        try:
            job = slurm.job(job_id)
        except JobNotFoundError:
            raise
        except SlurmError as error:
            if clock.now() - answered > SILENCE_S:
                raise
            said = printable(f"Slurm does not answer, asking again: {str(error).splitlines()[0]}")
            yield Look(None, () if silent else (said,))
            silent = True
            clock.sleep(LONGEST_PAUSE_S)
            continue
        answered, silent = clock.now(), False
        # A run that fails may be put back into the queue a moment later: only a second look makes that end certain.
        if job.state in ENDED and job.state not in ("COMPLETED", doubted):
            doubted = job.state
            clock.sleep(DOUBT_S)
            continue
        doubted, told = "", changes(last, job)
        changed = answered if told else changed
        yield Look(job, told, job.state in ENDED)
        if job.state in ENDED:
            return
        last = job
        clock.sleep(min(LONGEST_PAUSE_S, max(FIRST_PAUSE_S, (answered - changed) / 10)))


def of_several(slurm: Slurm, ids: Sequence[int], clock: Clock) -> int:
    """Wait until one of these jobs, of which one is to run (`any_of`), has started; which one. Raises as `follow`.

    The first where all were cancelled before one did.
    """
    answered = clock.now()
    while True:
        try:
            jobs = slurm.jobs(ids)
        except SlurmError:
            if clock.now() - answered > SILENCE_S:
                raise
            jobs = {}
        else:
            answered = clock.now()
            waiting = [job for job in jobs.values() if job.state in WAITING]
            going = [job for job in jobs.values() if job not in waiting and job.state != "CANCELLED"]
            if not waiting and len(going) < 2:
                return going[0].id if going else ids[0]
        clock.sleep(FIRST_PAUSE_S if len(jobs) > 1 else LONGEST_PAUSE_S)


def changes(before: Job | None, job: Job) -> tuple[str, ...]:
    """What a person wants to hear between two looks at a job."""
    told: list[str] = []
    given = grant.parse(job.admin_comment)
    if job.restarts > (before.restarts if before else 0):
        told.append(f"restart {job.restarts}: {given.last}" if given and given.last else f"restart {job.restarts}")
    if job.excluded and job.excluded != (before.excluded if before else ""):
        told.append(f"left out: {job.excluded}")
    if before is None or (job.state, job.nodes) != (before.state, before.nodes):
        told.append(_state(job))
    return tuple(map(printable, told))


def _state(job: Job) -> str:
    if job.state == "PENDING":
        return f"PENDING ({job.reason})" if job.reason else "PENDING"
    if job.state in ENDED:
        code = f" with exit code {job.exit_code}" if job.exit_code else ""
        return f"{job.state}{code or (f' by signal {job.exit_signal}' if job.exit_signal else '')}"
    return f"{job.state} on {job.nodes}" if job.nodes else job.state
