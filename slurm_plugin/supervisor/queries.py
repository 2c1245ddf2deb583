"""Queries of a run to Slurm's controller about its job, and how long to wait for answers."""

import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, NamedTuple

from hostfiles import HostfileError, nodelist
from hostfiles.allocation import number
from prechecks.report import JOBS, OURS
from slurm_plugin.errors import MissingError
from slurm_plugin.records import node_drains
from slurm_plugin.records.job_plan import JobPlan
from slurm_plugin.slurm import Job, Slurm, SlurmDeniedError, SlurmError, inventory
from slurm_plugin.slurm.calls import Patience
from slurm_plugin.supervisor.launcher import Launcher
from slurm_plugin.supervisor.log import say
from slurm_plugin.supervisor.run import Run, from_environment, own_variables, restart_count

AWAY_S: Final = 300.0  # wait this long while slurmctld restarts or fails over: it cannot start or requeue jobs then

LOOK_S: Final = 30.0  # the shortest interval between queries for one waiting job
LOOKS_WELL: Final = 2
LATE_S: Final = 60.0  # slurmctld does not check all nodes at the same time
KILLED_S: Final = 4.0  # before Slurm's SIGKILL: time to end the program and to record the attempt
SLURMD_TIMEOUT_S: Final = 300.0  # slurm.conf's own default


class Surroundings(NamedTuple):
    """The values that all attempts of a run share."""

    plan: JobPlan
    site: Mapping[str, Any]
    door: Slurm
    environ: Mapping[str, str]  # as Slurm gave it to the batch script
    launcher: Launcher


def patience(launcher: Launcher, seconds: float = AWAY_S) -> Patience:
    """Return how to wait for a controller that does not answer: up to `seconds`, or until SIGTERM or SIGINT."""
    return Patience(seconds, say, sleep=launcher.pause, give_up=lambda: launcher.told_to_end)


def job(door: Slurm, job_id: int, launcher: Launcher) -> Job | None:
    """Return the job; None if it cannot be read. Wait with `patience` if the controller does not answer."""
    try:
        return patience(launcher).ask(lambda: door.job(job_id), repeatable=True)
    except SlurmError as error:
        say(f"could not read the job: {error}")
        return None


def run(environ: Mapping[str, str], door: Slurm, plan: JobPlan) -> tuple[Run, Mapping[str, str]]:
    """Return the run of a batch script, and the environment of its program.

    A plain script gets the environment as Slurm gave it, with the variables of the job that submitted it. Raise
    UsageError and HostfileError as `from_environment` and `accelerators.slots`. If Slurm does not tell what the job
    requested, it counts as requested per node, as in most jobs.
    """
    given = counted(environ, door)
    own = own_variables(given)
    slots = plan.slots or (1 if plan.plain else inventory.gpu_slots(own, door.devices_of))
    found = replace(from_environment(own, slots, [each for each, _ in plan.groups]), devices=True)
    with suppress(SlurmError, MissingError):
        request = door.request(found.job_id)
        own = own_variables(own, request.cpus)
        found = replace(found, devices=request.gres is not None)
        if not found.devices:
            found = replace(found, gpus=inventory.gpu_numbers(door.devices_of(found.job_id)))
    return found, given if plan.plain else own


def counted(environ: Mapping[str, str], door: Slurm) -> Mapping[str, str]:
    """Return the environment, without the restart count if the controller says that this is the job's first run.

    On a first run Slurm sets no count, but a job that was submitted inside a restarted job inherits that job's count.
    """
    if not restart_count(environ) or (job_id := number(environ, "SLURM_JOB_ID")) is None:
        return environ
    try:
        if door.job(job_id).restarts:
            return environ
    except SlurmError as error:
        say(f"could not read whether the job was restarted: {error}")
        return environ
    return {name: value for name, value in environ.items() if name != "SLURM_RESTART_COUNT"}


def runs(door: Slurm, job_id: int) -> bool:
    """Return whether the job is RUNNING; True if Slurm does not answer.

    Slurm may start a batch script while a prolog fails, and then end it.
    """
    try:
        return door.job(job_id).state == "RUNNING"
    except SlurmError:
        return True


def drained(door: Slurm, job_id: int, told: Mapping[str, str]) -> tuple[str, ...]:
    """Return which of these nodes the plugin has drained, and no administrator has resumed; empty if that is unknown.

    `told`: node -> what its guard says of its drain. The word of root's record counts if the site does not show nodes
    to users: only for a drain since the job has started, because the record outlives an administrator's resume.
    """
    try:
        found = door.nodes(tuple(told))
        return tuple(name for name, node in found.items() if node.standing_reason.startswith(OURS))
    except SlurmDeniedError:
        pass
    except SlurmError as error:
        say(f"could not read the nodes: {error}")
        return ()
    try:
        started = door.job(job_id).start_time
    except SlurmError as error:
        say(f"could not read the job: {error}")
        return ()
    return tuple(name for name, drain in told.items() if started and node_drains.parts(drain)[1] > started.timestamp())


def refused(door: Slurm, names: tuple[str, ...], job_ids: tuple[int, ...]) -> dict[str, str]:
    """Return the nodes that this package's Prolog refused to one of these jobs, and the reasons; empty if unreadable.

    Use this for a heterogeneous job that may not be requeued: 26.05 continues its other groups and starts steps there.
    """
    try:
        reasons = {name: node.standing_reason for name, node in door.nodes(names).items()}
    except SlurmError as error:
        say(f"could not read the nodes: {error}")
        return {}
    ours = {name: reason for name, reason in reasons.items() if reason.startswith(OURS)}
    marks = [f" [job {job_id}]" for job_id in job_ids]
    return {
        name: JOBS.sub("", reason.removeprefix(OURS))
        for name, reason in ours.items()
        if any(mark in reason for mark in marks)
    }


def task_prolog(door: Slurm, before: Callable[[], str]) -> str:
    """Return slurm.conf's TaskProlog; empty without one. If slurm.conf cannot be read, return what it was `before`."""
    try:
        return door.config().get("TaskProlog") or ""
    except SlurmError as error:
        say(f"could not read slurm.conf: {error}")
        return before()


def kill_wait(door: Slurm) -> float:
    """Return how many seconds a program may save after SIGTERM before Slurm kills it; 0 if too few or unknown."""
    try:
        return max(0.0, float(door.config()["KillWait"].split()[0]) - KILLED_S)
    except (SlurmError, LookupError, ValueError):
        return 0.0


def time_left(door: Slurm, job_id: int) -> float:
    """Return the seconds until the job's time limit; infinity without a limit or if it cannot be read."""
    try:
        end = door.job(job_id).end_time
    except SlurmError:
        return float("inf")
    return end.timestamp() - time.time() if end else float("inf")


def until_gone(
    door: Slurm, job_id: int, names: tuple[str, ...], restart: int, sleep: Callable[[float], object] = time.sleep
) -> bool:
    """Wait until Slurm reports each node as DOWN or has removed it from run `restart` of the job, and return True.

    Return False on timeout, or if the nodes answer again. If the job does not outlive its nodes, Slurm requeues it and
    ends this process during the wait.
    """
    well = 0  # the number of checks in a row that found no problem
    try:
        timeout_s = float(door.config()["SlurmdTimeout"].split()[0])
    except (SlurmError, LookupError, ValueError):
        timeout_s = SLURMD_TIMEOUT_S
    for _ in range(math.ceil((timeout_s + LATE_S) / LOOK_S)):
        sleep(LOOK_S)
        try:
            job = door.job(job_id)
            if job.restarts > restart:
                return True
            there = set(nodelist.expand(job.nodes)) if job.nodes else set()
            found = door.nodes(names) if there.intersection(names) else {}
        except (SlurmError, HostfileError):
            continue
        states = [found[name].states for name in names if name in found and name in there]
        if all("DOWN" in each for each in states):
            return True
        well = 0 if any(each & {"DOWN", "NOT_RESPONDING"} for each in states) else well + 1
        if well == LOOKS_WELL:  # the nodes answer again
            return False
    return False
