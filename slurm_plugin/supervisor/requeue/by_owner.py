"""Restarts on a site that grants none, because no admin installed slurm_plugin there: the job's owner requeues the job.

Slurm lets the owner requeue a job, and change its ExcNodeList, StartTime and NumTasks while it is pending. Such a job
has a token and no grant. The lines of attempts.jsonl count its restarts: the supervisor writes the line of an attempt
before it requests the requeue, and a run without a last line died with its node, so it counts, too.

When a requeued job leaves COMPLETING, Slurm sets its StartTime to 121 s later, but only if that is not in the future
(measured on 22.05.8, 24.11.5 and 26.05.5). So the owner sets a StartTime a little later than the end of COMPLETING. Two
seconds must lie between the requeue and the start: a node of the first run still holds the revoked credential, whose
times are whole seconds.

slurmctld does not run its scheduler because a StartTime has come: on a quiet cluster the job would wait for the
backfill scheduler, every 30 s. It does run it after a change of a job, but not within batch_sched_delay (3 s) of the
last time. So one change right after the requeue makes it run within a second, and a second change, after that, makes it
run again when the StartTime of the second has come.

How long an epilog keeps the job COMPLETING is not known before. The other nodes run theirs while this one waits, so
their time is the estimate.
"""

import math
import os
import signal
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from hostfiles import HostfileError, nodelist
from slurm_plugin.records import grant, history, job_directory
from slurm_plugin.records.job_plan import JobPlan
from slurm_plugin.slurm import Job, Slurm, SlurmError
from slurm_plugin.supervisor.log import say

WAITING: Final = ("PENDING", "COMPLETING")  # of a job that has been requeued
LOOP_S: Final = 1.1  # slurmctld looks every second whether the scheduler has to run
OTHERS_S: Final = 0.6  # of the wait, for the other nodes to end the job
SOON_S: Final = 2  # the end of a job on one node takes 0.1 s; slurmctld counts whole seconds
ORPHAN_S: Final = 30  # the steps of other nodes need 15 s to end: they report to the dead first node
SPENT: Final = "no restart is left: the job has used those of its spec"


class Plan(NamedTuple):
    """What guards know of a job's plan, for the case that its supervisor is lost."""

    retries: int = 0
    tasks: int = 0  # of the fewest nodes of a job with a range of nodes
    no_kill: bool = True  # whether Slurm keeps the job when a node is lost
    directory: str = ""  # of the job
    cluster: str = ""


def requeue_orphan(door: Slurm, job: Job, first: str, plan: Plan) -> None:
    """Requeue a job whose supervisor is lost with its node `first`. Cancel it if no restart is left: nothing runs it.

    Let a job start soon that Slurm has requeued.
    """
    lines = job_directory.attempts(Path(plan.directory), plan.cluster) or []
    trial = (lines[-1].get("trial") or 0) if lines else 0
    by_slurm = job.state in WAITING
    if not (by_slurm or grant.of_owner(job, plan.retries, lines, trial).left):
        say(SPENT)
        door.cancel(job.id)
        return
    run = job.restarts - by_slurm
    requeue(door, job.id, run, [*given_up(lines, run), first], plan.tasks, wait_s=ORPHAN_S)


def until_sigterm(seconds: float) -> bool:
    """Wait, at most until Slurm tells this process to end, which has SIGTERM blocked. Return whether Slurm did."""
    return signal.sigtimedwait({signal.SIGTERM}, seconds) is not None


def given_up(lines: Iterable[Mapping[str, Any]], restart: int) -> list[str]:
    """Return the nodes that attempts of this run found bad: a run in the same allocation went on without them."""
    return [name for line in lines if line.get("restart") == restart for name, _ in history.verdicts(line)]


def requeue(
    door: Slurm, job_id: int, restart: int, leave_out: Iterable[str], tasks: int = 0, *, wait_s: int | None = None
) -> None:
    """Requeue run `restart` of a job without these nodes, and let it start soon. Do no more if a later run has begun.

    `tasks`: NumTasks of a job with a range of nodes. If Slurm has requeued the job already, because a node went down or
    because an answer was lost, only change it. `wait_s`: until the start; None: as long as the end of a run takes.

    Slurm ends this process with SIGTERM during the requeue. Ignore it until the job is changed. Raise SlurmError if the
    job cannot be requeued.
    """
    start_s = _wait_s(door) if wait_s is None else wait_s
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        job = door.job(job_id)
        if job.restarts > restart and job.state not in WAITING:
            return
        if job.state not in WAITING:
            door.requeue(job_id)
        if _change(door, job, leave_out, tasks, start_s):
            if wait_s is None:
                start_s = _start_soon(door, job, start_s)
            say(f"the job may start again in {start_s} s; `slurm-plugin submit --wait` may start it sooner")
    finally:
        signal.signal(signal.SIGTERM, before)


def _change(door: Slurm, job: Job, leave_out: Iterable[str], tasks: int, wait_s: int) -> bool:
    """Change the nodes, the tasks and the start of a requeued job. What Slurm refuses is left as it is.

    Return whether the start was changed.
    """
    excluded: list[str] = []
    with suppress(HostfileError):
        excluded = nodelist.expand(job.excluded) if job.excluded else []
        required = _required(door, job.id)
        if kept := required.intersection(leave_out):
            say(f"the job asks for {nodelist.fold(sorted(kept))} by name (nodelist), so it gets no other node instead")
        leave_out = [name for name in leave_out if name not in required]
    names = list(dict.fromkeys([*excluded, *leave_out]))
    without = {"ExcNodeList": nodelist.fold(names)} if names else {}
    fewest = {"NumTasks": str(tasks)} if tasks else {}
    for more in [without | fewest, *([without] if fewest else []), *([{}] if without else [])]:
        try:
            door.update_job(job.id, **more, StartTime=f"now+{wait_s}")
        except SlurmError as error:
            say(f"could not change the requeued job: {error.one_line}")
        else:
            return True
    return False


def _start_soon(door: Slurm, job: Job, wait_s: int) -> int:
    """Keep the job COMPLETING until only this node has it, then set its start anew.

    `job`: as it was before the requeue. `wait_s`: until its start so far. Return the time until the start.
    """
    own, began = os.environ.get("SLURMD_NODENAME", ""), time.monotonic()
    epilog = wait_s > grant.USUAL_WAIT_S
    if epilog and job.nodes == own:
        return wait_s
    time.sleep(LOOP_S)
    try:
        while (now := door.job(job.id)).state == "COMPLETING" and now.nodes != own:
            if time.monotonic() - began > wait_s * OTHERS_S:
                return wait_s
            time.sleep(LOOP_S / 4)
        soon = SOON_S + (math.ceil(2 * (time.monotonic() - began)) if epilog else 0)
        if soon < wait_s:
            door.update_job(job.id, StartTime=f"now+{soon}")
            return soon
    except SlurmError as error:
        say(f"could not change the start of the requeued job: {error.one_line}")
    return wait_s


def _required(door: Slurm, job_id: int) -> frozenset[str]:
    """Return the nodes that a job requires by name; none if Slurm does not say. Without them it would never start."""
    try:
        found = door.queueing([job_id]).get(job_id)
    except SlurmError:
        found = None
    return frozenset(nodelist.expand(found.required)) if found and found.required else frozenset()


def forbid_requeue(door: Slurm, job: Job) -> None:
    """Let Slurm requeue the job no more, also if a node dies. A partition that requeues preempted jobs keeps that."""
    try:
        if door.config().get("PreemptMode", "").upper() not in ("", "OFF"):
            return
        door.update_job(job.id, Requeue="0")
    except SlurmError as error:
        say(f"could not forbid another requeue: {error.one_line}")


def tasks_of(plan: JobPlan, environ: Mapping[str, str] = os.environ) -> int:
    """Return the tasks of the fewest nodes of a job; 0 if the job has no range of nodes."""
    each = environ.get("SLURM_NTASKS_PER_NODE", "")
    return plan.min_nodes * (int(each) if each.isdigit() else 1) if 0 < plan.min_nodes < plan.nodes else 0


def _wait_s(door: Slurm) -> int:
    """Return the seconds from the requeue to the next start."""
    try:
        return grant.wait_of_owner_s(door.config())
    except SlurmError:
        return grant.wait_of_owner_s({"Epilog": "unknown"})
