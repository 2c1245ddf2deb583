"""Ask the supervisor of another user's job to act on it: the job must be shared with a group of the caller."""

import os
import pwd
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final

from slurm_plugin.cli.nodeside import job_lookup
from slurm_plugin.errors import SlurmPluginError, printable
from slurm_plugin.records import job_directory, requests
from slurm_plugin.records.requests import Request
from slurm_plugin.slurm import Job, Slurm

# Longest wait for the answer: the supervisor reads every second, through a file server, and may wait for SlurmUser.
ANSWER_S: Final = 60.0
POLL_S: Final = 0.2
_DENIED: Final = "ermission denied"  # ESLURM_ACCESS_DENIED, on 22.05, 24.11 and 26.05
NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


def is_anothers(job: Job) -> bool:
    """Return whether a job belongs to another user than the caller. Root acts on each job directly."""
    try:
        return os.geteuid() != 0 and bool(job.user) and pwd.getpwuid(os.geteuid()).pw_name != job.user
    except KeyError:
        return False


def may_ask(directory: Path) -> bool:
    """Return whether the caller may write requests into a job's directory."""
    return os.access(directory / requests.DIRECTORY, os.W_OK | os.X_OK)


def place(door: Slurm, job: Job) -> Path | None:
    """Return the directory of another user's running job if the caller may write requests there; else None."""
    if job.state != "RUNNING" or not is_anothers(job):
        return None
    found = (job_lookup.work_directory(door, job.id) or Path()) / job_directory.OURS / str(job.id)
    return found if may_ask(found) else None


def ask(door: Slurm, job: Job, directory: Path, verb: str, arguments: Mapping[str, str] = NOTHING) -> str:
    """Request a verb and wait for the answer. Return the text of the answer.

    Raise SlurmPluginError if the caller may not ask, or if the request is not carried out.
    """
    if not may_ask(directory):
        raise not_shared(job, verb)
    try:
        request = Request(verb, arguments, job.id, job.restarts or 0, job_lookup.cluster(door))
        name = requests.write(directory, request)
    except OSError as error:
        raise SlurmPluginError(
            f"{directory / requests.DIRECTORY}: {error.strerror}\n  ask {printable(job.user)}"
        ) from error
    try:
        return _answer(job, directory, name)
    finally:
        requests.withdraw(directory, name)


def not_shared(job: Job, verb: str) -> SlurmPluginError:
    """Return the error for a job that the caller may not act on."""
    whose = printable(job.user)
    who = "" if job.state == "RUNNING" else ", and only while it runs also a group with which it is shared"
    return SlurmPluginError(
        f"job {job.id} is {whose}'s and not shared with you: only {whose} can {verb} it{who}\n"
        "  its spec may have: share: {group: ONE OF YOURS, access: read-write}; yours are: id -Gn"
    )


@contextmanager
def explained(job: Job, verb: str) -> Iterator[None]:
    """Replace Slurm's refusal to let the caller change another user's job by `not_shared`."""
    try:
        yield
    except SlurmPluginError as error:
        if is_anothers(job) and any(_DENIED in str(each) for each in (error, error.__cause__)):
            raise not_shared(job, verb) from error
        raise


def _answer(job: Job, directory: Path, name: str) -> str:
    """Wait for the answer to a request. Raise SlurmPluginError if it is refused, or not answered in ANSWER_S."""
    try:
        owner: int | None = pwd.getpwnam(job.user).pw_uid
    except KeyError:
        owner = None
    end = time.monotonic() + ANSWER_S
    while time.monotonic() < end:
        for each in requests.answers(directory, owner):
            if each.request == name and not each.done:
                raise SlurmPluginError(f"job {job.id}: {printable(each.said)}\n  see: slurm-plugin why {job.id}")
            if each.request == name:
                return printable(each.said)
        time.sleep(POLL_S)
    raise SlurmPluginError(
        f"job {job.id} did not answer in {ANSWER_S:g} s: its first node looks at {directory / requests.DIRECTORY}\n"
        f"  is that the same directory there? or ask {printable(job.user)}"
    )
