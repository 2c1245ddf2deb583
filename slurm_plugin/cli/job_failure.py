"""The failure of a job for `slurm-plugin diagnose JOB`: the logs of one attempt, and what is known beside them."""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

from hostfiles import HostfileError, nodelist
from slurm_plugin.cli.nodeside import job_lookup, log_lookup
from slurm_plugin.logs import known, reader, selection
from slurm_plugin.logs.known import Known
from slurm_plugin.logs.scan import Source
from slurm_plugin.logs.source import LogFile, log_file
from slurm_plugin.records import diagnoses, grant, history, log_files
from slurm_plugin.slurm import ENDED, Job, JobNotFoundError, Slurm, SlurmError
from slurm_plugin.views import why_node

AFTER: Final = timedelta(minutes=1)  # from a failed prolog until Slurm has drained the node and requeued the job


class Failure(NamedTuple):
    """What is to be read, and what is known."""

    files: list[LogFile | Path]  # a path: a dump of PyTorch's flight recorder
    known: Known


def of_job(word: str, directory: Path, number: int | None) -> Failure:
    """Return the failure of an attempt of a job; by default of its last one.

    Raise NoLogError if there is no log, UsageError, UnknownJobError or SlurmError for a job that is not known.
    """
    door = job_lookup.door_to_slurm()
    found = log_lookup.find(word, directory, door)
    job = None
    with suppress(SlurmError, JobNotFoundError):
        job = door.job(found.job_id)
    numbered: dict[int, Mapping[str, Any]] = {
        each["n"]: each for each in found.attempts if isinstance(each.get("n"), int)
    }
    recorded = {number: each for number, each in numbered.items() if each.get("phase")}  # by its own supervisor
    hosts = found.hosts()
    last = max({*recorded, *hosts}, default=0)  # with the one that runs
    attempt = last if number is None else number
    line = numbered.get(attempt, {})
    files: list[LogFile | Path] = []
    missing: list[LogFile | Path] = []
    for source in found.files():
        if source.attempt not in (None, attempt):
            continue
        name = Source(str(source.path), source.rank, source.node)
        try:
            whole = reader.part(source.path)
            alone = source.attempt is not None or source.kind != selection.JOB or not recorded
            parts = [whole] if alone else reader.of_attempt(whole, found.job_id, attempt)
            files += [LogFile(source.path, name, part.range.start, part.range.end) for part in parts]
        except OSError as error:  # the diagnosis names what cannot be read
            (missing if isinstance(error, FileNotFoundError) else files).append(LogFile(source.path, name))
    files += [log_file(error.path) for error in log_files.error_files(found.directory, attempt)]
    files += log_files.dumps(found.directory, attempt)
    files = files or (missing if line else [])  # its exit code and its nodes are recorded
    if not files:
        if job and not recorded and (job.state in ENDED or job.restarts):
            return Failure([], _unstarted(door, job)._replace(job=word))
        now = f"; the job is {job.state} ({job.reason})" if job else ""
        raise selection.NoLogError(f"found no log of attempt {attempt}{now}\n  its state: slurm-plugin why {word}")
    ended = job is not None and job.state in ENDED and attempt == last
    code, kernel = line.get("code"), diagnoses.read(found.directory).get(attempt, {}).get("kernel")
    if not isinstance(code, int) and job and ended:  # the job is not slurm_plugin's, or its supervisor was lost
        code = -job.exit_signal if job.exit_signal else job.exit_code
    drains: dict[str, str] = {}
    if job and ended and (start := job.start_time) and (end := job.end_time):
        drains = _drains(door, job, lambda at: start <= at <= end + AFTER)
        drains = {name: why_node.bare_reason(reason) for name, reason in drains.items()}
    return Failure(
        files,
        Known(
            job=word,
            state=_state(line, job.state if job and ended else ""),
            nodes=hosts.get(attempt, selection.UNKNOWN).by_rank(),
            oom=(ended_by := history.ended_by(line)) == "memory",
            ended_by=ended_by,
            by_node=line.get("launch") == "node",
            faults=drains | _down(line) | dict(history.verdicts(line)),
            kernel={str(name): str(text) for name, text in kernel.items()} if isinstance(kernel, dict) else {},
            code=code if isinstance(code, int) else None,
        ),
    )


def _state(line: Mapping[str, Any], state: str) -> str:
    """Return Slurm's state of an attempt: the job's, or what the attempt's record says of its end."""
    if state not in ("", "FAILED"):  # Slurm sees a program that saved at its time limit as FAILED
        return state
    if history.ended_by(line) == "time":
        return "TIMEOUT"
    return "NODE_FAIL" if grant.DOWN in str(line.get("cause")) else state


def _down(line: Mapping[str, Any]) -> dict[str, str]:
    """Return the nodes that went down and so ended an attempt, as its record names them."""
    found = re.search(rf"(\S+) {grant.DOWN}", str(line.get("cause")).replace(grant.WENT_DOWN, ""))
    return dict.fromkeys(nodelist.names(found[1]) if found else (), grant.DOWN)


def _unstarted(door: Slurm, job: Job) -> Known:
    """Return what Slurm says of a job without a log: most often a prolog failed, and its script never ran."""
    again = f", requeued {job.restarts} times" if job.restarts else ""
    said = f"{job.state} ({job.reason}){again}, exit code {job.exit_code}; no log was written"
    ends = [end for end in (job.submit_time, job.end_time) if end]
    drains = _drains(door, job, lambda at: any(abs(end - at) < AFTER for end in ends))
    faults = {
        name: f"{known.PROLOG}: Slurm drained it: {reason}; the job: {said}"
        for name, reason in drains.items()
        if known.PROLOG in reason.lower()
    }
    code = 0 if job.state == "COMPLETED" else None
    state = job.state if job.state in ENDED else ""
    return Known(state=state, faults=faults, code=code, unstarted=f"Slurm says: {said}")


def _drains(door: Slurm, job: Job, then: Callable[[datetime], bool]) -> dict[str, str]:
    """Return the reasons of those nodes of a job that were taken out of service then."""
    with suppress(SlurmError, HostfileError):
        nodes = door.nodes(nodelist.expand(job.nodes) if job.nodes else ())
        return {name: node.reason for name, node in nodes.items() if node.reason_time and then(node.reason_time)}
    return {}
