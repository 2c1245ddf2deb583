"""Measure how long a fault stops a job: with a restart in its allocation, a requeue, and plain Slurm.

    .venv/bin/python benchmarks/recovery.py [--runs 5] [--requeues 20] [--fencing] [--plain | --no-plain] [--root DIR]
                                            [--json] [--nodes 100] [--smallest]

Jobs of 4 nodes run in sandboxes with a real Slurm. Level 1 is a restart in the same allocation, with a spare; level 2
is a requeue onto other nodes. The program fails when it sees that its GPU is gone, and writes down the time. The result
is the seconds from then to the first step of the last rank in the next attempt. The time from the fault to the failure
is printed separately.

--requeues: also requeue jobs onto the nodes of their last run, which have just revoked their credentials; none may be
lost. --plain: also measure a user's restarts where no admin has installed slurm_plugin, and those after the death of a
node, from its death (minutes). --fencing: also cut a node off, and measure until its ranks have ended (half a minute).
--nodes: measure only the death of a node in a large sandbox, and the parts of the time until the next launch.
--smallest: each case once.

Exits 1 if level 1 takes 0.5 s or more, if level 2 takes 3 s or more (4 s on 22.05, whose nodes refuse a requeued job
for 2 s), if a restart of --plain takes longer than its limit, or if a requeue was lost.
"""

import argparse
import json
import os
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.progress import Progress

from benchmarks.cluster import sandbox
from benchmarks.measure import arguments, judged
from benchmarks.recovery_alone import alone
from benchmarks.recovery_alone import missed as missed_alone
from benchmarks.recovery_deaths import LEFT, dead_node
from benchmarks.recovery_runs import (
    GPUS,
    JOB_NODES,
    NODES,
    Run,
    cut_node,
    failed_program,
    plain_jobs,
    plain_run,
    requeues,
)
from slurm_plugin.slurm import releases
from slurm_plugin.slurm.releases import Release

LEVEL_1_S, LEVEL_2_S, USUAL_SETTLE_S = 0.5, 3.0, 1.0
PLAIN_JOBS = 2
PLAIN_S = 121.0  # cred_expire (120 s by default) + 1: measured on 22.05.8, 24.11.5 and 26.05.5


def measured(options: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """Measure, and return all results."""
    step = progress.add_task("recoveries", total=2 * options.runs)
    with (
        plain_jobs(options.root, options.plain, short=options.smallest) as plain,
        sandbox(NODES, GPUS, options.root) as box,
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
        deaths = [dead_node(box, JOB_NODES - 1, spares) for spares in (1, 0)] if options.smallest else []
        found = {}
        if options.alone:
            progress.update(step, description="without an installation")
            found = {"alone": alone(options.root, options.runs)}
        progress.update(step, description="plain Slurm, two minutes")
        return found | {
            "version": version,
            "level 1": one,
            "level 2": two,
            "plain": [plain_run(job) for job in plain],
            "requeues": {"asked": options.requeues, "lost": lost, "seconds": back},
            "fencing": fencing,
            "deaths": deaths,
            "load": os.getloadavg()[1],
        }


def died(options: argparse.Namespace) -> int:
    """Measure and print the recovery from the death of one of many nodes."""
    with sandbox(options.nodes, GPUS, options.root) as box:
        version = box.run(["sinfo", "--version"]).stdout.split()[-1]
        runs = [dead_node(box, options.nodes - LEFT, spares) for spares in (1, 0)]
    if options.json:
        print(json.dumps({"version": version, "nodes": options.nodes - LEFT, "deaths": [*map(asdict, runs)]}))
    else:
        print(f"seconds from a node's death, {options.nodes - LEFT} nodes, Slurm {version}")
        show_deaths(runs)
        print(f"load of this machine, last 5 minutes: {os.getloadavg()[1]:.1f} on {os.cpu_count()} CPUs")
    return 0


def show_deaths(runs: Sequence[Run]) -> None:
    """Print each recovery and its parts."""
    for title, run in zip(("a node's death: in the allocation", "a node's death: by a requeue"), runs, strict=True):
        print(f"{title:<46}{run.seconds:7.2f}")
        for name, seconds in run.phases.items():
            print(f"    {name:<42}{seconds:7.2f}")


def row(title: str, runs: Sequence[Run], plain_s: float) -> str:
    """Return one line of the table."""
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
    for title, runs in found.get("alone", {}).items():
        print(row(f"no admin: {title}", runs, plain_s))
    for name in found["level 2"][0].phases:
        known = [run.phases[name] for run in found["level 2"] if name in run.phases]
        print(f"    {name:<42}{statistics.median(known):7.2f}")
    second = ", and until the next whole second" if release.settle_second else ""
    print(f"    of which its last nodes refuse it, on {release.name}: {release.settle_s:g} s{second}")
    if found["plain"]:
        print(row("plain sbatch --requeue, scontrol requeue", found["plain"], plain_s))
    else:
        print(f"{'plain: not run, cred_expire + 1 s':<46}{plain_s:7.2f}")
    print(f"{'before: from the fault until the program fails':<46}{statistics.median(run.seen_s for run in ours):7.2f}")
    for name, seconds in found["fencing"].items():
        print(f"{f'after a cut: {name}':<46}{seconds:7.2f}")
    if found["deaths"]:
        show_deaths(found["deaths"])
    same = found["requeues"]
    if same["seconds"]:
        middle, most = statistics.median(same["seconds"]), max(same["seconds"])
        print(f"{same['asked']} requeues onto the same nodes: {same['lost']} lost; median {middle:.2f}, max {most:.2f}")
    print(f"load of this machine, last 5 minutes: {found['load']:.1f} on {os.cpu_count()} CPUs")


def missed(found: Mapping[str, Any], settle_s: float) -> list[str]:
    """Return a message for each missed limit."""
    words = []
    limit_2_s = LEVEL_2_S + max(0.0, settle_s - USUAL_SETTLE_S)
    for name, limit_s in (("level 1", LEVEL_1_S), ("level 2", limit_2_s)):
        middle = statistics.median(run.seconds for run in found[name])
        if middle >= limit_s:
            words.append(f"{name}: {middle:.2f} s, the limit is {limit_s:.1f} s")
    return words


def main() -> int:
    """Measure, print and judge."""
    parser = arguments(__doc__)
    parser.add_argument("--runs", type=int, default=5, help="faults of each level [default: 5]")
    parser.add_argument("--requeues", type=int, default=20, help="onto the same nodes [default: 20]")
    parser.add_argument("--fencing", action="store_true", help="cut a node off, too")
    parser.add_argument("--plain", dest="alone", action="store_true", help="also without an installation")
    parser.add_argument(
        "--no-plain", dest="plain", action="store_const", const=0, default=PLAIN_JOBS,
        help=f"do not run plain Slurm; use {PLAIN_S:.0f} s",
    )  # fmt: skip
    parser.add_argument("--nodes", type=int, default=0, help="measure only the death of one of N nodes")
    parser.add_argument("--root", type=Path, help="the root of another release, as for `sandbox up --root`")
    parser.add_argument("--json", action="store_true", help="one object instead of the table")
    options = parser.parse_args()
    if options.runs < 1 or options.requeues < 0:
        parser.error("accepted are --runs of 1 or more and --requeues of 0 or more")
    if options.smallest:
        options.runs, options.requeues, options.fencing, options.alone = 1, 1, True, True
        options.plain = min(options.plain, 1)
    if options.nodes:
        if options.nodes < LEFT + JOB_NODES - 1:
            parser.error(f"accepted is --nodes of {LEFT + JOB_NODES - 1} or more")
        return died(options)
    with Progress(transient=True, disable=not sys.stderr.isatty()) as progress:
        found = measured(options, progress)
    release = releases.of(found["version"]) or releases.RELEASES[-1]
    plain_s = statistics.median(run.seconds for run in found["plain"]) if found["plain"] else PLAIN_S
    words = [*missed(found, release.settle_s), *missed_alone(found.get("alone", {}))]
    if options.json:
        levels = {name: [run.seconds for run in found[name]] for name in ("level 1", "level 2", "plain")}
        seen = [run.seen_s for name in ("level 1", "level 2") for run in found[name]]
        more = {"until the program fails": seen, "settle_s": release.settle_s, "missed": words}
        more |= {"deaths": [*map(asdict, found["deaths"])]}
        more |= {"alone": {title: [run.seconds for run in runs] for title, runs in found.get("alone", {}).items()}}
        print(json.dumps({**found, **levels, **more}))
    else:
        show(found, plain_s, release)
    lost = found["requeues"]["lost"]
    if lost:
        print(f"{lost} of {options.requeues} requeues were lost", file=sys.stderr)
    return int(bool(lost)) or judged(words, smallest=options.smallest)


if __name__ == "__main__":
    sys.exit(main())
