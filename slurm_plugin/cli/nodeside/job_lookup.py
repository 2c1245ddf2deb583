"""Find the job that a command names: its number, Slurm's facts about it, and the records in the job's directory.

A command that takes several jobs prints a line for each and continues after a failure: `act_on_each`.
"""

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from slurm_plugin.cli.nodeside.definition import PROGRAM, Parameter
from slurm_plugin.errors import SlurmPluginError, UsageError, printable
from slurm_plugin.records import diagnoses, history, job_directory, log_files
from slurm_plugin.slurm import ENDED, Job, JobNotFoundError, Listed, Slurm, SlurmAwayError, SlurmError, connect
from slurm_plugin.supervisor import hold

A_JOB = "a job's number such as 17, a task of an array 17_3, a part of a heterogeneous job 17+1"
_JOB = re.compile("[0-9]{1,10}(?:[_+][0-9]{1,10})?", re.ASCII)
DEADLINE_S = 10.0  # for each answer of Slurm, while a person waits at a terminal

JOB = Parameter("job", A_JOB, "JOB")
DIRECTORY = Parameter(
    "--directory",
    "The job's working directory, for a job that Slurm has forgotten.  [default: here]",
    "DIR",
    Path(),
    Path,
)


class NotRunningError(SlurmPluginError):
    """The job does not run now, or cannot take the request (exit 1)."""


class UnknownJobError(SlurmPluginError):
    """Slurm answered, and does not know the job (exit 1)."""


class JobFacts(NamedTuple):
    """A job as seen from this machine: Slurm's answer, and the records in the job's own directory."""

    job: Job | None  # None if slurmctld has forgotten it
    directory: Path
    # Each with its `diagnosis`, if there is one; None if they cannot be read. If slurmctld has forgotten the job, also
    # the runs that only slurmdbd knows.
    attempts: list[dict[str, Any]] | None
    held: dict[str, Any] | None  # None if the job is not held


def work_directory(door: Slurm, job_id: int) -> Path | None:
    """Return a job's working directory as an absolute path; None if Slurm does not give one."""
    try:
        found = door.work_directory(job_id)
    except SlurmError:
        return None
    return Path(found) if found.startswith("/") else None


def is_job(word: str) -> bool:
    """Return whether a word has the form of a job id: a job, an array task or a part of a heterogeneous job."""
    return _JOB.fullmatch(word) is not None


def job_number(word: str, door: Slurm, directory: Path | None = None, *, part: bool = False) -> int:
    """Return the number of a job or array task.

    For a part of a heterogeneous job return the number of the whole job, which has the attempts, or with `part` the
    number of the part. `directory`: the working directory whose records name a task or part that slurmctld has
    forgotten, unless slurmdbd knows the task. Raise UsageError for a word in another form, UnknownJobError for a task
    or part that nobody knows.
    """
    if not is_job(word):
        raise UsageError(f"{printable(word)!r} is no job\n  accepted is {A_JOB}")
    if word.isdecimal():
        return int(word)
    name = canonical(word)
    whole = int(re.split("[_+]", name)[0])
    there = door.members(whole)
    if name in there:
        return there[name] if part or "_" in name else whole
    if directory is not None:
        past = {each.name: each.job.id for each in accounted(door, whole)} if "_" in name else {}
        if (found := past.get(name, recorded(word, directory))) is not None:
            return found
    known = f"; it knows {' '.join([*there][:8])}" if there else ""
    records = "in its working directory, or with --directory DIR; or: " if directory is not None else ""
    raise UnknownJobError(
        f"Slurm does not know job {name}{known}\n  of one that ended long ago: {records}sacct -j {name}"
    )


def one_job(word: str, door: Slurm, directory: Path | None, error: type[SlurmPluginError], advice: str) -> int:
    """Return the number of one job, as `job_number`. Raise `error` for an array: its last task has the same number.

    `advice`: what to do instead. Some tasks replace `{tasks}`, and the number of the array replaces `{job}`.
    """
    job_id = job_number(word, door, directory)
    if word.isdecimal() and (tasks := array_tasks(door, job_id)):
        raise error(f"job {job_id} is an array\n  " + advice.format(tasks=" ".join([*tasks][:8]), job=job_id))
    return job_id


def recorded(word: str, directory: Path) -> int | None:
    """Return the number of a job, array task or part by the records in its working directory; None without records."""
    name = canonical(word)
    found = log_files.of_task(directory, name) if "_" in name else int(name.partition("+")[0])
    return found if (directory / job_directory.OURS / str(found)).is_dir() else None


def canonical(word: str) -> str:
    """Return the name of a job without leading zeros, as Slurm writes it."""
    return re.sub("[0-9]+", lambda number: str(int(number[0])), word)


def array_tasks(door: Slurm, job_id: int) -> Mapping[str, int]:
    """Return the ids of an array's tasks by name; empty if the job is not an array, or is an array task."""
    found = door.members(job_id)
    return {name: number for name, number in found.items() if name.startswith(f"{job_id}_")}


def door_to_slurm() -> Slurm:
    """Return a door with the deadline for commands at a terminal."""
    return connect(deadline_s=DEADLINE_S)


def job_facts(door: Slurm, job_id: int, directory: Path) -> JobFacts:
    """Return the facts of a job. `directory` is its working directory if Slurm does not give one.

    Raise SlurmError if Slurm does not answer.
    """
    found, past, workdir = None, None, directory
    try:
        found = door.job(job_id)
        workdir = work_directory(door, job_id) or directory
    except JobNotFoundError:
        past = next((each for each in accounted(door, job_id) if each.job.id == job_id), None)
        if past and not (directory / job_directory.OURS / str(job_id)).is_dir():
            workdir = directory / past.directory  # which is absolute or empty
    own, ours = workdir / job_directory.OURS / str(job_id), cluster(door)
    known = attempts(own, ours)
    if past:
        known = history.complete(known, past.job) or known
    return JobFacts(found, own, known, hold.now(found, own, ours) if found else None)


def accounted(door: Slurm, job_id: int) -> list[Listed]:
    """Return slurmdbd's records of an ended job, and of its tasks or parts; empty without an answer of slurmdbd."""
    with suppress(SlurmError):
        return door.ended(datetime.fromtimestamp(0, UTC), job_ids=[job_id]) or []
    return []


def attempts(own: Path, cluster_name: str) -> list[dict[str, Any]] | None:
    """Return the recorded attempts of a job, each with its diagnosis; None if they cannot be read."""
    found, known = job_directory.attempts(own, cluster_name), diagnoses.read(own, cluster_name)
    for attempt in found or ():
        # A command that is run again by hand in a hold has the number of the attempt that failed.
        failed = attempt.get("code") != 0
        if failed and isinstance(number := attempt.get("n"), int) and (form := known.get(number)):
            attempt["diagnosis"] = form
    return found


def cluster(door: Slurm) -> str:
    """Return the name of the cluster, which distinguishes its jobs from other clusters' jobs; "" if unknown."""
    try:
        return door.config().get("ClusterName", "")
    except SlurmError:
        return ""


def living_job(door: Slurm, job_id: int) -> Job:
    """Return a job that has not ended. Raise NotRunningError for any other job, SlurmError if Slurm does not answer."""
    try:
        found = door.job(job_id)
    except JobNotFoundError as error:
        raise NotRunningError(f"Slurm does not know job {job_id}\n  try: slurm-plugin why {job_id}") from error
    if found.state in ENDED:
        raise NotRunningError(f"job {job_id} has ended: it is {found.state}\n  try: slurm-plugin why {job_id}")
    return found


def running_job(word: str) -> tuple[Job, Path, Slurm]:
    """Return a running job, its own directory, and the door to its Slurm.

    Raise UsageError for a word that is not a job, UnknownJobError for an unknown array task or part, NotRunningError if
    the job does not run or its directory is not readable on this machine, SlurmError if Slurm does not answer.
    """
    door = door_to_slurm()
    job_id = job_number(word, door)
    found = living_job(door, job_id)
    if found.state != "RUNNING":
        raise NotRunningError(f"job {job_id} does not run: it is {found.state}\n  try: slurm-plugin why {job_id}")
    directory = (work_directory(door, job_id) or Path()) / job_directory.OURS / str(job_id)
    try:
        directory.stat()
    except PermissionError as error:
        whose = f"only {found.user}, whose job it is, may look there"
        raise NotRunningError(f"{directory}: {whose}\n  as that user: slurm-plugin why {job_id}") from error
    except OSError as error:
        raise NotRunningError(
            f"{directory}: {error.strerror} on this machine; it is made when a job of ours begins\n"
            "  where its file system is not mounted here, call this on a node of the job:\n"
            f"  srun --jobid={job_id} --overlap --nodes=1 --ntasks=1 --pty bash"
        ) from error
    return found, directory, door


JOBS: Final = Parameter("jobs", A_JOB, "JOB", nargs="+")


class Done(NamedTuple):
    """What was done with one job: the text for people, and the fields of the JSON object."""

    job: int
    said: str
    fields: Mapping[str, Any] = {}


def act_on_each(words: Sequence[str], verb: str, one: Callable[[str], Done], *, as_json: bool) -> int:
    """Call `one` for each job that a user named. Return 0, else the exit code of the first failure.

    The code is 2 if Slurm fails to answer. If no controller answers, skip the remaining jobs.
    """
    code, forms = 0, list[Mapping[str, Any]]()
    for word in dict.fromkeys(words):
        try:
            done = one(word)
        except SlurmPluginError as error:
            unsure = isinstance(error, SlurmError) and not isinstance(error, JobNotFoundError)
            code = code or (UsageError.exit_code if unsure else error.exit_code)
            forms.append({"job": word, "error": error.one_line})
            print(f"{PROGRAM}: {error}", file=sys.stderr)
            if isinstance(error, SlurmAwayError):
                break
            continue
        forms.append({"job": done.job, **done.fields})
        if not as_json:
            print(f"job {done.job}: {done.said}", flush=True)
    if as_json:
        print(json.dumps({"v": 1, "asked": verb, "jobs": forms}))
    return code
