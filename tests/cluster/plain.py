"""Alice's jobs without slurm_plugin, and actions of an administrator or SlurmUser on them."""

import time

from slurm_plugin.sandbox import Sandbox
from tests import releases
from tests.cluster.jobs import Job, workdir
from tests.releases import OBSERVED, Observed


def release_of(box: Sandbox) -> Observed:
    """Return the observations of the installed Slurm."""
    return releases.of(box.run(["sinfo", "--version"]).stdout.split()[-1])


def sbatch(box: Sandbox, name: str, *options: str, script: str = "exec sleep 9000") -> Job:
    """Submit a script of alice's, with its output in job.out of a new directory."""
    directory = workdir(box, f"releases-{name}")
    words = ["sbatch", "--parsable", f"--chdir=/home/alice/{directory.name}", "--output=job.out", *options]
    return Job(box, int(box.run(words, input=f"#!/bin/sh\n{script}\n").stdout), directory)


def scontrol(box: Sandbox, *words: str, user: str = "slurm") -> bool:
    """Return whether scontrol succeeded. By default it runs as SlurmUser, like the worker."""
    return box.run(["scontrol", *words], user=user, check=False).returncode == 0


def start(job: Job) -> None:
    """Start a requeued job as the worker does."""
    time.sleep(max(known.settles_in(time.time()) for known in OBSERVED))
    assert scontrol(job.box, "update", f"JobId={job.id}", "StartTime=now")


def restarts(job: Job) -> int:
    """Return Slurm's restart count of the job."""
    return int(job.box.run(["squeue", "-h", "-t", "all", "-j", str(job.id), "-O", "RestartCnt"]).stdout)


def waits_again(job: Job, count: int) -> tuple[str, str]:
    """Wait until the job is in the queue for the `count`th time. Return its state and reason."""
    job.until(lambda: restarts(job) >= count and job.state in {"PENDING", "REQUEUE_HOLD"}, f"restart {count}")
    state, reason = job.show("T", "r")
    return state, reason


def resume(box: Sandbox) -> None:
    """Heal and resume all nodes."""
    for node, state in box.states().items():
        if state != "idle":
            box.heal_node(node, resume=True)
