"""End a run for Slurm: requeue the job without its bad nodes, or cancel it."""

import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from hostfiles import nodelist
from slurm_plugin.records import grant
from slurm_plugin.records.job_plan import JobPlan
from slurm_plugin.slurm import Job, Slurm, SlurmError
from slurm_plugin.slurm.calls import Patience
from slurm_plugin.supervisor import queries
from slurm_plugin.supervisor.decide import Action
from slurm_plugin.supervisor.log import say
from slurm_plugin.supervisor.requeue import by_owner, with_grant
from slurm_plugin.supervisor.run import Run

KILL_WAIT_S: Final = (
    120.0  # wait for Slurm to end this process after a requeue or a cancel; KillWait is 30 s by default
)


def spent(door: Slurm, job: Job, plan: JobPlan, lines: Sequence[Mapping[str, Any]]) -> str:
    """Return why a run of a job without a grant may not start; empty if it may."""
    restarts = close_budget(door, job, plan, lines)
    return by_owner.SPENT if restarts.used > restarts.granted else ""


def close_budget(door: Slurm, job: Job, plan: JobPlan, lines: Sequence[Mapping[str, Any]]) -> grant.Grant:
    """Let Slurm requeue a job without a grant no more once its last restart is used. Return its restarts."""
    if not plan.retries or not grant.is_alone(job, plan.retries):
        return grant.Grant()
    restarts = grant.of_owner(job, plan.retries, lines, plan.trial)
    if not restarts.left:
        by_owner.forbid_requeue(door, job)
    return restarts


def cancel(door: Slurm, job_id: int) -> None:
    """Cancel a job that was stopped, so that Slurm and dependent jobs see it as cancelled."""
    if os.environ.get("ENVIRONMENT") != "BATCH":  # set by Slurm. Elsewhere Ctrl-C must not end the allocation
        return
    try:
        Patience(queries.AWAY_S, say).ask(lambda: door.cancel(job_id), repeatable=True)
    except SlurmError as error:
        say(f"could not cancel the job: {error.one_line}")
        return
    time.sleep(KILL_WAIT_S)


def requeue(
    door: Slurm,
    run: Run,
    plan: JobPlan,
    action: Action,
    *,
    again: int,
    lost: Sequence[str],
    lines: Sequence[Mapping[str, Any]],
    files: Path,
) -> None:
    """Write this run and the nodes to leave out into the job's comment and requeue the job.

    `lost`: nodes that did not answer. `again`: the restarts inside allocations. `lines`: of attempts.jsonl in `files`.
    """
    patience = Patience(queries.AWAY_S, say)
    request = with_grant.Request(run.restart, action.leave_out, again, moved=action.moved)
    try:
        job = patience.ask(lambda: door.job(run.job_id), repeatable=True)
        if alone := grant.is_alone(job, plan.retries):
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # the job is changed before this process ends
            last = lines[-1] if lines else {}
            if (last.get("n"), last.get("action")) != (run.attempt, "requeue"):
                # Without the record it might be requeued more often than its spec says.
                say(f"the job is not requeued: {files / 'attempts.jsonl'} could not be written")
                return
        if lost:
            # If the job is requeued before Slurm notices the loss, it stays COMPLETING until then. On 22.05 steps of
            # its next run then get no GPU ("Invalid generic resource"). Without --no-kill Slurm ends this process
            # during the wait.
            if not alone:  # the mark is for the controller's worker
                patience.ask(lambda: with_grant.mark(door, run.job_id, request), repeatable=True)
            say(f"waiting until Slurm has noticed that {nodelist.fold(lost)} is gone")
            pause = by_owner.until_sigterm if alone else time.sleep
            queries.until_gone(door, run.job_id, tuple(lost), run.restart, sleep=pause)
        if alone:
            without = [*by_owner.given_up(lines, run.restart), *action.leave_out]
            more = (run.restart, without, by_owner.tasks_of(plan))
            patience.ask(lambda: by_owner.requeue(door, run.job_id, *more), repeatable=True)
            return
        request = request._replace(grow=action.grow)
        patience.ask(lambda: with_grant.requeue(door, run.job_id, request), repeatable=True)
    except (SlurmError, ValueError) as error:
        say(f"could not requeue: {error}")
        return
    time.sleep(KILL_WAIT_S)
