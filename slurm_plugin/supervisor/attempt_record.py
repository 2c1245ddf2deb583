"""What a run records for commands: where it writes, its attempts with diagnoses, and attempts of earlier runs."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from slurm_plugin.records import diagnoses, grant, history, job_directory, log_files, progress_file, slow, usage
from slurm_plugin.records.job_plan import JobPlan
from slurm_plugin.slurm import Job, SlurmError
from slurm_plugin.supervisor import hold
from slurm_plugin.supervisor.decide import BAD, IN_A_ROW, Action, Attempt
from slurm_plugin.supervisor.guard import fencing
from slurm_plugin.supervisor.log import say
from slurm_plugin.supervisor.run import Run

OF_A_JOB: Final = (
    job_directory.TURN, job_directory.ATTEMPTS, diagnoses.FILE, hold.STATE, usage.FILE, progress_file.FILE, slow.FILE,
)  # fmt: skip
SKEW_S: Final = 60.0  # a file server's clock may differ from slurmctld's by so much
CONTINUED: Final = "its task ended before the trial did"


def line(
    run: Run,
    where: str,
    attempt: Attempt,
    action: Action,
    *,
    started: float,
    then: str,
    slots: Sequence[int] = (),
    launch: str = "",
    program: tuple[float, float] = (0.0, 0.0),
    checkpoint: float = 0.0,
    trial: int = 0,
) -> dict[str, Any]:
    """Return the line of an attempt that ends now. Only that of a trial has `told` (to end) and `saved`.

    `where`: the node list of its program. `slots`: the number of its ranks on each node; empty if there are none.
    `launch`: `node` if each task of srun is a launcher, `task` if it is a rank.
    `program`: when the last program began and ended. `checkpoint`: when the newest checkpoint was written. If that was
    before this attempt, it has none of its own. `then`: what follows it.
    """
    return {
        "n": run.attempt,
        "restart": run.restart,
        "nodes": where,
        "launch": launch,
        "slots": slots[0] if len({*slots}) == 1 else list(slots),
        "start": _utc(started),
        "end": _utc(time.time()),
        "program": [_utc(each) for each in program] if program[0] >= started else None,
        "checkpoint": _utc(checkpoint) if checkpoint >= started else None,
        "phase": attempt.phase,
        "code": action.code if action.kind == "fail" else attempt.code,
        "cause": action.reason,
        "progress": attempt.progress,
        "verdicts": {name: health.what for name, health in attempt.nodes.items() if health.condition in BAD},
        "action": then,
        **({"trial": trial, "told": attempt.told_to_end, "saved": attempt.saved} if trial else {}),
    }


def forget_another(directory: Path, cluster: str, job: Callable[[], Job]) -> None:
    """Remove the records of an old job of this cluster with the same number, for the first run of a job.

    A slurmctld that has lost its state counts from 1 again. With these records the job would have used restarts, or a
    later run of it would have begun. `job`: asks Slurm.
    """
    if fencing.taken(directory, cluster)[0] < 0 and not job_directory.attempts(directory, cluster):
        return
    with suppress(SlurmError):
        submitted = job().submit_time
        before = submitted.timestamp() - SKEW_S if submitted else 0.0
        for path in (directory / name for name in OF_A_JOB):
            with suppress(OSError):
                if path.lstat().st_mtime < before:
                    path.unlink()


def next_number(recorded: Sequence[Mapping[str, Any]]) -> int:
    """Return the number of the attempt after the recorded ones."""
    return max((number + 1 for each in recorded if isinstance(number := each.get("n"), int)), default=0)


def write(directory: Path, fields: Mapping[str, Any], cluster: str) -> None:
    """Record an attempt. If that fails, for example on a full disk, only log it: the job goes on."""
    try:
        job_directory.record(directory, {"cluster": cluster, **fields})
    except OSError as error:
        say(f"could not record attempt {fields['n']}: {error}")


def diagnosis(directory: Path, attempt: int, form: diagnoses.Form, cluster: str) -> None:
    """Record the diagnosis of an attempt for `why`, `history` and `diagnose`."""
    try:
        diagnoses.write(directory, attempt, form, cluster)
    except OSError as error:
        say(f"could not record the diagnosis: {error}")


def output(directory: Path, plan: JobPlan, environ: Mapping[str, str]) -> None:
    """Record where this run writes, for the commands that read its logs."""
    task = environ.get("SLURM_ARRAY_TASK_ID", "")
    task = task and f"{environ.get('SLURM_ARRAY_JOB_ID')}_{task}"
    name, out, err = environ.get("SLURM_JOB_NAME", ""), log_files.path_of(1), log_files.path_of(2)
    try:
        log_files.write_output(directory, log_files.Output(name, out, err, plan.logs, plan.logs_per, task))
    except OSError as error:
        say(f"could not record where this job writes: {error}")


def made_up(directory: Path, recorded: Sequence[Mapping[str, Any]], job: Job, cluster: str) -> None:
    """Log and record how earlier runs ended if their script never began or died with its node."""
    for each in history.complete(recorded, job, slurms=False):
        if each.get("phase", "") is None and each not in recorded:
            say(f"error,exiting: attempt {each['n']}: {each['cause']}; the job runs again")
            write(directory, each, cluster)


def lines_of_reason(given: grant.Grant) -> list[str]:
    """Return the reason of the last restart as log lines, `<node> <item>: failed: <what>`."""
    lines, node = [], ""
    for part in filter(None, given.last.split("; ")):
        head, _, rest = part.partition(": ")
        if head in given.excluded:
            node, (head, _, rest) = head, rest.partition(": ")
        failed = f"{node} {head}: failed: {rest}" if rest else f"{node} {head}"
        lines.append(failed if node else part)
    return lines


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def has_saved(lines: Sequence[Mapping[str, Any]], restart: int) -> bool:
    """Return whether an attempt of run `restart` left a new checkpoint."""
    return any(line.get("restart") == restart and line.get("progress") for line in lines)


def in_a_row(lines: Sequence[Mapping[str, Any]]) -> int:
    """Count the restarts without a faulty node since the last progress, up to IN_A_ROW + 1."""
    count = 0
    for line in reversed(lines):
        if line.get("action") not in ("again", "requeue") or line.get("progress"):
            break
        count += line.get("phase", "") is not None and not line.get("verdicts")
        if count > IN_A_ROW:
            break
    return count
