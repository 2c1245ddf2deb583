"""How long a job stands still after a fault: both levels of our restarts, and plain Slurm's requeue in the same run.

    .venv/bin/python benchmarks/recovery.py [--runs 5] [--requeues 20] [--fencing] [--no-plain] [--root DIR] [--json]

Real jobs of 4 nodes on a real Slurm, in sandboxes of their own. Seconds from the program's own failure, which it writes
down when it sees that its GPU is gone, to the first step of its last rank in the next attempt. Until it sees that, and
until a cut node's ranks have surely ended (--fencing, half a minute), is given apart. --requeues: so many requeues onto
the nodes of the run before; none may be lost to a credential that they have just revoked.

Exits 1 where level 1 takes 0.5 s or more, level 2 takes 3 s or more (4 s on 22.05, whose nodes take no requeued job for
2 s), or a requeue was lost.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.progress import Progress

sys.path.insert(0, str(Path(__file__).parents[1]))  # before this directory, which holds a hostfiles.py
from benchmarks.recovery_jobs import (
    BEGIN,
    END,
    FAIL_WITHOUT_GPU,
    RUN_ON,
    UNTIL_DONE,
    WRITE_ON,
    Job,
    Stamps,
    sandbox,
    until,
)
from slurm_plugin import token
from slurm_plugin.sandbox import Sandbox
from slurm_plugin.slurm import releases
from slurm_plugin.slurm.releases import Release

NODES, GPUS, JOB_NODES, VICTIM = 5, 2, 4, "n2"
LEVEL_1_S, LEVEL_2_S, USUAL_SETTLE_S = 0.5, 3.0, 1.0
PLAIN_JOBS, PLAIN_WAIT_S = 2, 180.0
PLAIN_S = 121.0  # cred_expire (120 s by default) + 1: measured on 22.05.8, 24.11.5 and 26.05.5
FENCING_WAIT_S = 120.0
SPEC = f"mode: pytorch\naccelerators: {{gpu: {GPUS}}}\noutput: job.out\ntime: 10m\n"


@dataclass(frozen=True, slots=True)
class Run:
    """One recovery: its seconds, those of its phases, and how long the program took before to see the fault."""

    seconds: float
    seen_s: float | None = None
    phases: Mapping[str, float] = field(default_factory=dict)


def submitted(box: Sandbox, name: str, command: str, nodes: int = JOB_NODES, **more: int) -> Job:
    """A job of ours."""
    text = f"name: {name}\ncommand: {command}\nnodes: {nodes}\n{SPEC}"
    text += "".join(f"{key}: {value}\n" for key, value in more.items())
    return Job(box, name, ["slurm-plugin", "submit", "-"], text, nodes)


def failed_program(box: Sandbox, name: str, spares: int) -> Run:
    """A GPU breaks under the program: it goes on in its allocation with a spare, else by a requeue."""
    stamps = Stamps(box)
    job = submitted(box, name, FAIL_WITHOUT_GPU, retries=1, spares=spares)
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
    """Where the seconds went, by slurmctld's log. Empty where it has not these lines (they are 22.05's)."""
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
    """A node is cut off while its rank writes: when that has ended, and when the program runs again on the spare."""
    job = submitted(box, "cut", WRITE_ON, retries=1, spares=1)
    job.began(0)
    box.break_node(VICTIM, "network-cut")
    cut = time.time()
    began = job.began(1, FENCING_WAIT_S)
    ended = float((job.directory / f"end.0.{VICTIM}").read_text())
    first = min(job.times("begin", 1))
    if ended >= first:
        raise SystemExit(f"the cut node's rank wrote {ended - first:.1f} s after the next attempt had begun")
    job.finish()
    box.heal_node(VICTIM, resume=True)
    until(lambda: set(box.states().values()) == {"idle"}, FENCING_WAIT_S, f"{VICTIM} in service")
    return {"last write of the cut node's rank": ended - cut, "running again": began - cut}


def requeues(box: Sandbox, wanted: int) -> tuple[list[float], int]:
    """Requeues of ours onto the same nodes: the seconds of those that came back, and how many were lost."""
    seconds: list[float] = []
    job, run, lost = None, 0, 0
    for number in range(wanted):
        if job is None:
            job, run = submitted(box, f"same{number}", RUN_ON, NODES, retries=min(wanted, token.MAX_RETRIES)), 0
            job.began(0)
        asked, done = time.time(), job
        words = str(token.Token(min(wanted, token.MAX_RETRIES), "auto", token.Mark(run)))
        box.run(["scontrol", "update", f"JobId={job.id}", f"Comment={words}"])
        box.run(["scontrol", "requeue", str(job.id)])
        run += 1
        until(lambda job=done, run=run: job.running(run) or job.state in ("FAILED", "NODE_FAIL"), 150, f"run {run}")
        if job.running(run):
            seconds.append(job.began(run) - asked)
        else:
            lost += 1
        if not job.running(run) or run == token.MAX_RETRIES or number == wanted - 1:
            job.finish()
            job = None
    drained = box.run(["sinfo", "-h", "-R", "-o", "%N %E"]).stdout
    if drained:  # what a start that came too early does on 24.11
        raise SystemExit(f"the requeues drained healthy nodes:\n{drained}")
    return seconds, lost


@contextmanager
def plain_jobs(root: Path | None, *, wanted: bool) -> Iterator[list[Job]]:
    """Jobs of a Slurm without our hooks that fail and requeue themselves at once; they wait while others run."""
    if not wanted:
        yield []
        return
    fail = f'[ "$SLURM_RESTART_COUNT" != 0 ] || {{ {END}; exit 5; }}'
    program = f"bash -c '{BEGIN}; {fail}; {UNTIL_DONE} sleep 0.05; done'"
    count = "export SLURM_RESTART_COUNT=${SLURM_RESTART_COUNT:-0}"
    script = f"#!/bin/bash\n{count}\nsrun {program} || scontrol requeue $SLURM_JOB_ID\n"
    words = ["sbatch", "--parsable", "--requeue", f"--nodes={JOB_NODES}", "--output=job.out"]
    with sandbox("p", PLAIN_JOBS * JOB_NODES, GPUS, root, hooks=False) as box:
        jobs = [Job(box, f"plain{number}", words, script, JOB_NODES) for number in range(PLAIN_JOBS)]
        for job in jobs:
            job.began(0)
        yield jobs


def plain_run(job: Job) -> Run:
    """From the program's failure to its first step, as Slurm alone does it."""
    again = job.began(1, PLAIN_WAIT_S)
    (job.directory / "done").touch()
    return Run(again - max(job.times("end", 0)))


def measured(options: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """All figures of one run."""
    step = progress.add_task("recoveries", total=2 * options.runs)
    with (
        plain_jobs(options.root, wanted=options.plain) as plain,
        sandbox("", NODES, GPUS, options.root, hooks=True) as box,
    ):
        version = box.run(["sinfo", "--version"]).stdout.split()[-1]
        one, two = [], []
        for number in range(options.runs):
            one.append(failed_program(box, f"one{number}", spares=1))
            two.append(failed_program(box, f"two{number}", spares=0))
            progress.advance(step, 2)
        progress.update(step, description="requeues onto the same nodes")
        back, lost = requeues(box, options.requeues)
        fencing = cut_node(box) if options.fencing else {}
        progress.update(step, description="plain Slurm, two minutes")
        return {
            "version": version,
            "level 1": one,
            "level 2": two,
            "plain": [plain_run(job) for job in plain],
            "requeues": {"asked": options.requeues, "lost": lost, "seconds": back},
            "fencing": fencing,
            "load": os.getloadavg()[1],
        }


def row(title: str, runs: Sequence[Run], plain_s: float) -> str:
    """One line of the table."""
    seconds = [run.seconds for run in runs]
    middle = statistics.median(seconds)
    return f"{title:<46}{middle:7.2f}{min(seconds):7.2f}{max(seconds):7.2f}{len(runs):6d}{plain_s / middle:11.0f}x"


def show(found: Mapping[str, Any], plain_s: float, release: Release) -> None:
    """Print the table."""
    ours = [*found["level 1"], *found["level 2"]]
    title = f"seconds, {JOB_NODES} nodes, Slurm {found['version']}"
    print(f"{title:<46}{'median':>7}{'min':>7}{'max':>7}{'runs':>6}{'plain/ours':>12}")
    print(row("level 1: a spare, in the same allocation", found["level 1"], plain_s))
    print(row("level 2: a requeue onto other nodes", found["level 2"], plain_s))
    for name in found["level 2"][0].phases:
        known = [run.phases[name] for run in found["level 2"] if name in run.phases]
        print(f"    {name:<42}{statistics.median(known):7.2f}")
    print(f"    of it until its last nodes take it again, on {release.name}: {release.settling}")
    if found["plain"]:
        print(row("plain sbatch --requeue, scontrol requeue", found["plain"], plain_s))
    else:
        print(f"{'plain: not run, cred_expire + 1 s':<46}{plain_s:7.2f}")
    print(f"{'before: from the fault until the program fails':<46}{statistics.median(run.seen_s for run in ours):7.2f}")
    for name, seconds in found["fencing"].items():
        print(f"{f'after a cut: {name}':<46}{seconds:7.2f}")
    same = found["requeues"]
    if same["seconds"]:
        middle, most = statistics.median(same["seconds"]), max(same["seconds"])
        print(f"{same['asked']} requeues onto the same nodes: {same['lost']} lost; median {middle:.2f}, max {most:.2f}")
    print(f"load of this machine, last 5 minutes: {found['load']:.1f} on {os.cpu_count()} CPUs")


def missed(found: Mapping[str, Any], settle_s: float) -> list[str]:
    """The limits that were missed, in words."""
    words = []
    limit_2_s = LEVEL_2_S + max(0.0, settle_s - USUAL_SETTLE_S)
    for name, limit_s in (("level 1", LEVEL_1_S), ("level 2", limit_2_s)):
        middle = statistics.median(run.seconds for run in found[name])
        if middle >= limit_s:
            words.append(f"{name}: {middle:.2f} s, the limit is {limit_s:.1f} s")
    if found["requeues"]["lost"]:
        words.append(f"{found['requeues']['lost']} of {found['requeues']['asked']} requeues were lost")
    return words


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="faults of each level [default: 5]")
    parser.add_argument("--requeues", type=int, default=20, help="onto the same nodes [default: 20]")
    parser.add_argument("--fencing", action="store_true", help="cut a node off, too")
    parser.add_argument("--no-plain", dest="plain", action="store_false", help=f"take {PLAIN_S:.0f} s for it instead")
    parser.add_argument("--root", type=Path, help="another release's root, as of `sandbox up --root`")
    parser.add_argument("--json", action="store_true", help="one object instead of the table")
    options = parser.parse_args()
    if options.runs < 1 or options.requeues < 0:
        parser.error("accepted are --runs of 1 or more and --requeues of 0 or more")
    with Progress(transient=True, disable=not sys.stderr.isatty()) as progress:
        found = measured(options, progress)
    release = releases.of(found["version"]) or releases.RELEASES[-1]
    plain_s = statistics.median(run.seconds for run in found["plain"]) if found["plain"] else PLAIN_S
    words = missed(found, release.settle_s)
    if options.json:
        levels = {name: [run.seconds for run in found[name]] for name in ("level 1", "level 2", "plain")}
        seen = [run.seen_s for name in ("level 1", "level 2") for run in found[name]]
        more = {"until the program fails": seen, "settle_s": release.settle_s, "missed": words}
        print(json.dumps({**found, **levels, **more}))
    else:
        show(found, plain_s, release)
        for each in words:
            print(each, file=sys.stderr)
    return int(bool(words))


if __name__ == "__main__":
    sys.exit(main())
