"""What a run asks Slurm's controller about its own job, and how long it waits for one that is away."""

import math
import time
from collections.abc import Callable
from typing import Final

from hostfiles import HostfileError, nodelist
from prechecks.report import JOBS, OURS
from slurm_plugin.job.launch import Launcher
from slurm_plugin.job.log import say
from slurm_plugin.slurm import Job, Slurm, SlurmError
from slurm_plugin.slurm.patience import Patience

AWAY_S: Final = 300.0  # a slurmctld that restarts or fails over; nothing could start or be requeued meanwhile

LOOK_S: Final = 30.0  # nobody of ours asks more often for one job while it waits
LOOKS_WELL: Final = 2
LATE_S: Final = 60.0  # slurmctld looks at its nodes in turns
SLURMD_TIMEOUT_S: Final = 300.0  # slurm.conf's own default


def patience(launcher: Launcher, seconds: float = AWAY_S) -> Patience:
    """For a controller that is away: it is waited for, as long as nobody tells us to end."""
    return Patience(seconds, say, sleep=launcher.pause, give_up=lambda: launcher.told_to_end)


def job(door: Slurm, job_id: int, launcher: Launcher) -> Job | None:
    """The job; a controller that is away is waited for, as long as nobody tells us to end. None: it cannot be read."""
    try:
        return patience(launcher).ask(lambda: door.job(job_id), repeatable=True)
    except SlurmError as error:
        say(f"could not read the job: {error}")
        return None


def runs(door: Slurm, job_id: int) -> bool:
    """Whether this run still has its nodes: Slurm starts a batch script beside a failing prolog, and ends it."""
    try:
        return door.job(job_id).state == "RUNNING"
    except SlurmError:
        return True


def drained(door: Slurm, names: tuple[str, ...]) -> tuple[str, ...]:
    """Which of these nodes are drained by us; none where nobody knows."""
    try:
        found = door.nodes(names)
    except SlurmError as error:
        say(f"could not read the nodes: {error}")
        return ()
    return tuple(name for name, node in found.items() if node.standing_reason.startswith(OURS))


def refused(door: Slurm, names: tuple[str, ...], job_ids: tuple[int, ...]) -> dict[str, str]:
    """The nodes that our Prolog has refused to one of these jobs, each with why; none where nobody knows.

    Of a heterogeneous job that may not be requeued: 26.05 lets its other groups go on, and starts steps there.
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


def time_left(door: Slurm, job_id: int) -> float:
    """Seconds until the job's time limit ends it; infinity where there is none, or nobody knows."""
    try:
        end = door.job(job_id).end_time
    except SlurmError:
        return float("inf")
    return end.timestamp() - time.time() if end else float("inf")


def until_gone(door: Slurm, job_id: int, names: tuple[str, ...], sleep: Callable[[float], None] = time.sleep) -> bool:
    """Wait until Slurm has seen that these nodes are gone; False where it has not when it should have, or answers not,
    or sees that they are well.

    It ends this process meanwhile where the job is not to outlive them.
    """
    well = 0  # looks in a row
    try:
        timeout_s = float(door.config()["SlurmdTimeout"].split()[0])
    except (SlurmError, LookupError, ValueError):
        timeout_s = SLURMD_TIMEOUT_S
    for _ in range(math.ceil((timeout_s + LATE_S) / LOOK_S)):
        sleep(LOOK_S)
        try:
            nodes = door.job(job_id).nodes
            there = set(nodelist.expand(nodes)) if nodes else set()
            found = door.nodes(names)
        except (SlurmError, HostfileError):
            continue
        states = [found[name].states for name in names if name in found and name in there]
        if all("DOWN" in each for each in states):
            return True
        well = 0 if any(each & {"DOWN", "NOT_RESPONDING"} for each in states) else well + 1
        if well == LOOKS_WELL:  # the cut has healed
            return False
    return False
