"""Collect every run and attempt of a job, as records and as rows of text. The functions have no side effects.

The sources are `attempts.jsonl` (written by the job's script), the grant (in which SlurmUser records runs that a fault
ended) and Slurm. The job's user owns attempts.jsonl, so it may have any content. Missing values are `?`.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from slurm_plugin.records import grant as grants
from slurm_plugin.records import token
from slurm_plugin.slurm import ENDED, Job

Attempt = dict[str, Any]
HEAD: Final = ("ATTEMPT", "START", "TOOK", "NODES", "CODE", "THEN", "BECAUSE")
THEN: Final[Mapping[str, str]] = {
    "again": "again", "requeue": "requeued", "fail": "failed", "finish": "ended", "hold": "held", "cancel": "cancelled",
}  # fmt: skip
_FOLLOWED: Final = {
    "again": "; then it started again on nodes that it had", "requeue": "; then it was requeued",
    "fail": "; then it failed", "hold": "; then it was held", "cancel": "; then it was cancelled",
}  # fmt: skip
_END_STATES: Final = {"finish": "COMPLETED", "fail": "FAILED", "hold": "FAILED", "cancel": "CANCELLED"}
TOLD_TO_END: Final = "it was told to end"  # how the cause begins of an attempt that Slurm ended, for whatever reason
OVER_TIME: Final = "ran into its time limit"  # in the cause of an attempt that had to save before its end
# Exit codes of a shell (POSIX, 2.8.2 Exit Status for Commands).
SHELLS_CODES: Final[Mapping[int, str]] = {126: "its command cannot be executed", 127: "its command was not found"}
WHY: Final[Mapping[str, str]] = {  # why a program ended -> the words in the cause of its attempt
    "hang": "hung", "grow": "was ended to run on more nodes", "nodes": "was ended", "slow": "was slow",
    "time": OVER_TIME, "memory": "ran out of memory",
}  # fmt: skip
OTHERS: Final = "it was requeued for another cause: a preemption, its owner or an administrator"
NO_RECORD: Final = "it left no record, as if its first node went down"
STATES: Final[Mapping[str, str]] = {  # Slurm's states of a job that has ended
    "COMPLETED": "its program ended with exit code 0",
    "FAILED": "it failed",
    "CANCELLED": "somebody cancelled it: its owner, an administrator, or Slurm after a failed prolog",
    "TIMEOUT": "its time limit was over",
    "NODE_FAIL": "a node of it died, and it may not be requeued",
    "OUT_OF_MEMORY": "it used more memory than it asked for",
    "PREEMPTED": "a job with a higher priority took its nodes",
    "DEADLINE": "it could not end before its deadline any more",
    "BOOT_FAIL": "its nodes did not boot",
}


def complete(attempts: Sequence[Mapping[str, Any]] | None, job: Job | None, *, slurms: bool = True) -> list[Attempt]:
    """Return all attempts, also those that the job's script could not record, oldest first.

    The script does not begin if a prolog fails, and dies with its node. An attempt that it did not record has no
    `phase`. `slurms`: also return attempts that are known only from Slurm's restart count or final state. `attempts`:
    None if they are unknown.
    """
    unread, attempts = attempts is None, attempts or ()
    found = list(zip(runs(attempts), map(dict, attempts), strict=True))
    given = grants.parse(job.admin_comment) if job else None
    if job is None or not (found or given or token.find(job.comment)):
        return [line for _, line in found]  # the plugin does not manage the job, or Slurm has forgotten it
    last = dict(found)
    for run in range(job.restarts + 1):
        recorded = run in last and last[run].get("action") != "again"
        end = _end(run, job, given or grants.Grant(), recorded=recorded or unread)
        if end is None:
            continue
        if recorded:
            _amend(last[run], end)
        elif slurms or end["why"] == "grant":
            found.append((run, end))
    found.sort(key=lambda each: each[0])  # stable: the order within a run stays
    number = -1
    for run, line in found:
        line.pop("why", None)
        given = line.setdefault("n", max(run, number + 1))
        number = given if isinstance(given, int) else number + 1
    return [line for _, line in found]


def end_of(job_id: int, attempts: Sequence[Mapping[str, Any]]) -> Job | None:
    """Return a job that Slurm has forgotten, as its last attempt says.

    Return None if the job did not end with it, or if Slurm ended it: cancelled, preempted or at its time limit, its
    program may have ended with 0.
    """
    last = attempts[-1] if attempts else {}
    state, code = _END_STATES.get(str(last.get("action"))), last.get("code")
    if state is None or not isinstance(code, int | None) or str(last.get("cause")).startswith(TOLD_TO_END):
        return None
    state = "FAILED" if state == "COMPLETED" and code else state
    return Job(job_id, "", state, "", str(last.get("nodes", "")), "", len(attempts) - 1, "", "", code)


def runs(attempts: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the run (restart count) of each attempt. A line without a number has the run of the line before."""
    found = [0]
    for line in attempts:
        run = line.get("restart")
        found.append(run if isinstance(run, int) else found[-1])
    return found[1:]


def restarts(job: Job) -> int:
    """Return the number of restarts of a job: those in its allocations, and requeues for any cause."""
    given, asked = grants.parse(job.admin_comment), token.find(job.comment)
    again = max(given.again if given else 0, asked.again if asked else 0)
    refused = given is not None and given.last.startswith(grants.NO_MORE) and given.counted < job.restarts - 1
    return max(0, job.restarts + again - refused)  # a requeue that was not granted is not a restart


def _end(run: int, job: Job, given: grants.Grant, *, recorded: bool) -> Attempt | None:
    """Return the end of a run from the grant or Slurm; None if it has not ended, or never began. `why`: the source.

    `recorded`: whether the script may have recorded the end, perhaps another one. If not, it has used a restart of a
    job that no grant counts.
    """
    told = next((each for each in given.runs if each.number == run), None)
    end: Attempt = {"restart": run, "nodes": "?", "start": None, "end": None, "phase": None, "code": None}
    if told:
        refused = run > given.counted and given.last.startswith(grants.NO_MORE)
        end |= {"nodes": told.nodes or "?", "end": f"{told.ended}+00:00", "why": "grant"}
        end |= {"cause": given.last, "action": "cancel"} if refused else {"cause": told.why, "action": "requeue"}
    elif run < job.restarts and not recorded and grants.is_alone(job):
        end |= {"cause": NO_RECORD, "action": "requeue", "why": "grant"}
    elif run < job.restarts:
        end |= {"cause": OTHERS, "action": "requeue", "why": "count"}
    elif job.state in ENDED and job.nodes:
        code = 128 + job.exit_signal if job.exit_signal else job.exit_code
        times = {name: time.isoformat() for name, time in (("start", job.start_time), ("end", job.end_time)) if time}
        action = {"CANCELLED": "cancel", "COMPLETED": "finish"}.get(job.state, "fail")
        says = STATES.get(job.state, f"it ended {job.state}")
        cause = given.last if given.last.startswith(grants.NO_MORE) else says
        end |= {"nodes": job.nodes, **times, "code": code, "cause": cause, "action": action, "why": "state"}
    else:
        return None
    return end | {"progress": None, "verdicts": {}}


def _amend(line: Attempt, end: Attempt) -> None:
    """Correct the line of a run that the script recorded as `finish` or `hold`, if the run ended otherwise."""
    if line.get("action") not in ("finish", "hold") or end["action"] == "finish":
        return
    if line["action"] == "finish" or end["action"] != "fail":  # a job that fails when its hold ends keeps `hold`
        line["cause"], line["action"] = f"{line.get('cause', '?')}: {end['cause']}", end["action"]
    if not line.get("code") and end["code"]:
        line["code"] = end["code"]


def rows(attempts: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Return HEAD and a row for each attempt, oldest first."""
    return [HEAD, *map(_row, attempts)]


def _row(attempt: Mapping[str, Any]) -> tuple[str, ...]:
    said = {name: str(attempt.get(name, "?")) for name in ("n", "nodes", "code", "action", "cause")}
    start, end = time_of(attempt.get("start")), time_of(attempt.get("end"))
    return (
        said["n"],
        local(start) if start else f"until {local(end)}" if end else "?",
        duration((end - start).total_seconds()) if start and end else "?",
        said["nodes"],
        "-" if attempt.get("code", 0) is None else said["code"],
        THEN.get(said["action"], said["action"]),
        said["cause"],
    )


def sentence(attempt: Mapping[str, Any]) -> str:
    """Return an attempt as one line."""
    said = {name: str(attempt.get(name, "?")) for name in ("n", "nodes", "cause", "action")}
    start, end = (time_of(attempt.get(name)) for name in ("start", "end"))
    until = local(end) if end else "?"
    since = local(start) if start else "?"
    begun = f"{since} to {until.removeprefix(since[:11]) or '?'}"  # on another day with its date
    when = f"until {until}" if attempt.get("start", "") is None else begun
    return f"attempt {said['n']} on {said['nodes']}, {when}: {said['cause']}{_FOLLOWED.get(said['action'], '')}"


def local(time: datetime) -> str:
    """Return a time in the user's time zone, which `--utc` changes, without its name."""
    return time.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def is_over_time(attempt: Mapping[str, Any]) -> bool:
    """Return whether an attempt failed because the job's time was over. Slurm sees such a job as FAILED."""
    return attempt.get("action") in ("fail", "hold") and OVER_TIME in str(attempt.get("cause"))


def ended_by(attempt: Mapping[str, Any]) -> str:
    """Return why the program of an attempt ended, a key of WHY; empty if it ended by itself."""
    said = str(attempt.get("cause"))
    return next((why for why, words in WHY.items() if f"program {words}" in said), "")


def verdicts(attempt: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the nodes that failed their checks, each with the reason."""
    found = attempt.get("verdicts")
    return [(str(node), str(what)) for node, what in found.items()] if isinstance(found, dict) else []


def duration(seconds: float) -> str:
    """Return a time as `45 s`, `12 min 5 s`, `3 h 20 min`, `2 d 4 h`; `?` for a negative time."""
    if seconds < 0:
        return "?"
    if seconds < 60:
        return f"{seconds:.0f} s"
    for above, first, second, small in ((3600, 60, 1, ("min", "s")), (86400, 3600, 60, ("h", "min"))):
        if seconds < above:
            return f"{seconds // first:.0f} {small[0]} {seconds % first // second:.0f} {small[1]}"
    return f"{seconds // 86400:.0f} d {seconds % 86400 // 3600:.0f} h"


def moment(time: Any) -> str:
    """Return a time, or the text of a recorded one, as `2026-01-31 12:00:00 CET`; `?` for anything else."""
    found = time if isinstance(time, datetime) else time_of(time)
    return f"{local(found)} {found.astimezone():%Z}" if found else "?"


def time_of(text: Any) -> datetime | None:
    """Parse a time with a time zone; return None for any other value, and for years that not every zone has."""
    try:
        found = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return found if found.tzinfo and datetime.min.year < found.year < datetime.max.year else None
