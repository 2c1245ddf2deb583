"""The faults of benchmarks/recovery.py. Each function causes a fault in a running sandbox and measures the recovery."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.cluster import sandbox
from benchmarks.recovery_jobs import BEGIN, END, FAIL_WITHOUT_GPU, RUN_ON, UNTIL_DONE, WRITE_ON, Job, Stamps
from slurm_plugin.records import token
from slurm_plugin.sandbox import Sandbox
from tests.cluster.etc import Etc
from tests.waiting import until

NODES, GPUS, JOB_NODES, VICTIM = 5, 2, 4, "n2"
# Submits the spec on stdin, prints the job's id, and leaves the process that follows the job.
FOLLOWED = """cat >job.yaml
setsid slurm-plugin submit --wait --json job.yaml >follow.log 2>&1 </dev/null &
until grep -q '"job"' follow.log 2>/dev/null; do sleep 0.1; done
grep -m 1 -o '"job": [0-9]*' follow.log"""
SPEC = f"mode: pytorch\naccelerators: {{gpu: {GPUS}}}\noutput: job.out\ntime: 10m\n"


@dataclass(frozen=True, slots=True)
class Run:
    """One recovery: its seconds, the seconds of its phases, and the seconds from the fault to the failure before it."""

    seconds: float
    seen_s: float | None = None
    phases: Mapping[str, float] = field(default_factory=dict)


def submitted(
    box: Sandbox, name: str, command: str, nodes: int = JOB_NODES, *, followed: bool = False, **more: int | str
) -> Job:
    """Submit a job with slurm-plugin. `followed`: with --wait."""
    text = f"name: {name}\ncommand: {command}\nnodes: {nodes}\n{SPEC}"
    text += "".join(f"{key}: {value}\n" for key, value in more.items())
    return Job(box, name, ["sh", "-c", FOLLOWED] if followed else ["slurm-plugin", "submit", "-"], text, nodes)


def failed_program(box: Sandbox, name: str, spares: int, *, followed: bool = False) -> Run:
    """Break a GPU of a running job. The job continues in its allocation with a spare, else by a requeue."""
    stamps = Stamps(box)
    job = submitted(box, name, FAIL_WITHOUT_GPU, followed=followed, retries=1, spares=spares)
    job.began(0)
    broken = time.time()
    box.break_node(VICTIM, "gpu-missing")
    again = job.began(1)
    ended = max(job.times("end", 0))
    restarts = stamps.last(f"Requeuing JobId={job.id}$") is not None
    if restarts == bool(spares):
        raise SystemExit(f"job {job.id} was {'' if restarts else 'not '}requeued, with {spares} spares")
    job.finish()
    box.heal_node(VICTIM, resume=True)
    return Run(again - ended, ended - broken, {} if spares else phases(stamps, job.id, ended, again))


def phases(stamps: Stamps, job: int, start: float, again: float) -> dict[str, float]:
    """Return the seconds of each phase, from slurmctld's log. Empty if a line is missing (the lines are 22.05's)."""
    go = stamps.last(f"setting begin to .* for JobId={job}$")
    requeued = stamps.last(f"Requeuing JobId={job}$")
    started = stamps.last(f"(?:Started|Allocate) JobId={job} ")
    if go is None or requeued is None or started is None:
        return {}
    return {
        "until Slurm has requeued it": requeued - start,
        "until our worker lets it start": go - requeued,
        "until Slurm has started it": started - go,
        "prologs, barrier, launch": again - started,
    }


def cut_node(box: Sandbox) -> dict[str, float]:
    """Cut a node off while its rank writes. Return the times of its last write and of the restart on the spare."""
    job = submitted(box, "cut", WRITE_ON, retries=1, spares=1)
    job.began(0)
    box.break_node(VICTIM, "network-cut")
    cut = time.time()
    began = job.began(1)
    ended = (job.directory / f"end.0.{VICTIM}").stat().st_mtime  # the text may be cut off, as the rank is killed
    first = min(job.times("begin", 1))
    if ended >= first:
        raise SystemExit(f"the cut node's rank wrote {ended - first:.1f} s after the next attempt had begun")
    job.finish()
    box.heal_node(VICTIM, resume=True)
    until(lambda: set(box.states().values()) == {"idle"}, f"{VICTIM} in service")
    return {"last write of the cut node's rank": ended - cut, "running again": began - cut}


def requeues(box: Sandbox, wanted: int) -> tuple[list[float], int]:
    """Requeue jobs onto the same nodes. Return the seconds of each requeue, and the number of lost ones."""
    seconds: list[float] = []
    job, run, lost = None, 0, 0
    retries = min(wanted, token.MAX_RETRIES)
    for number in range(wanted):
        if job is None:
            job, run = submitted(box, f"same{number}", RUN_ON, NODES, retries=retries), 0
            job.began(0)
        asked = time.time()
        words = str(token.Token(retries, "auto", token.Mark(run)))
        box.run(["scontrol", "update", f"JobId={job.id}", f"Comment={words}"])
        box.run(["scontrol", "requeue", str(job.id)])
        run += 1
        until(partial(_over, job, run), f"run {run}")
        if job.running(run):
            seconds.append(job.began(run) - asked)
        else:
            lost += 1
        if not job.running(run) or run == token.MAX_RETRIES or number == wanted - 1:
            job.finish()
            job = None
    drained = box.run(["sinfo", "-h", "-R", "-o", "%N %E"]).stdout
    if drained:  # on 24.11, by a start that was too early
        raise SystemExit(f"the requeues drained healthy nodes:\n{drained}")
    return seconds, lost


def _over(job: Job, run: int) -> bool:
    """Return whether a run has begun, or will never begin."""
    return job.running(run) or job.state in ("FAILED", "NODE_FAIL")


@contextmanager
def plain_jobs(root: Path | None, wanted: int, *, short: bool) -> Iterator[list[Job]]:
    """Start jobs on a Slurm without our hooks. They fail, requeue themselves, and wait while other jobs are measured.

    `short`: credentials expire after 5 s, not 120 s, so that a requeued job waits 6 s.
    """
    if not wanted:
        yield []
        return
    fail = f'[ "$SLURM_RESTART_COUNT" != 0 ] || {{ {END}; exit 5; }}'
    program = f"bash -c '{BEGIN}; {fail}; {UNTIL_DONE} sleep 0.05; done'"
    count = "export SLURM_RESTART_COUNT=${SLURM_RESTART_COUNT:-0}"
    script = f"#!/bin/bash\n{count}\nsrun {program} || scontrol requeue $SLURM_JOB_ID\n"
    words = ["sbatch", "--parsable", "--requeue", f"--nodes={JOB_NODES}", "--output=job.out"]
    with sandbox(wanted * JOB_NODES, GPUS, root, "p", hooks=False) as box:
        if short:
            with TemporaryDirectory() as kept:
                etc = Etc(box, Path(kept, "etc"))
                etc.settings(AuthInfo=f"socket={box.directory}/run/munge/socket,cred_expire=5")
                etc.restart()
        jobs = [Job(box, f"plain{number}", words, script, JOB_NODES) for number in range(wanted)]
        for job in jobs:
            job.began(0)
        yield jobs


def plain_run(job: Job) -> Run:
    """Return the recovery by Slurm alone, from the program's failure to its first step in the next run."""
    again = job.began(1)
    (job.directory / "done").touch()
    return Run(again - max(job.times("end", 0)))
