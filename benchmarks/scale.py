"""Measure what slurm_plugin costs on a cluster of many nodes, and how it grows with their number.

    .venv/bin/python benchmarks/scale.py [--nodes 100] [--parts jobs storm recovery spool submit] [--seconds 60]
                                         [--root DIR] [--json] [--smallest]

All nodes are hosts of a sandbox with a real Slurm, on this machine.

jobs: a job on 2 nodes and one on all nodes, with slurm_plugin and with sbatch alone. Requests to slurmctld from the
submission to the end of the epilogs; no request may be an update of a node. Then, while the large job runs, requests,
bytes on the network of its nodes, and memory of its supervisor. Its program is silent, so all traffic is that of the
guards and of Slurm. storm: all prologs of a job on all nodes fail in the same second. At most a tenth of the nodes may
be out afterwards. recovery: a node of a job on nearly all nodes dies (as benchmarks/recovery.py --nodes), and
the peak memory of the supervisor meanwhile. spool: the worker of the controller serves 10,000 ends of runs. submit:
submissions per second with a policy (as benchmarks/submit.py --only rate).

Exits 1 if a limit of docs/explanation/measurements.md is missed, or if more than a tenth of the nodes is out. A node
takes 8 MB of memory. More than 200 nodes need a larger neighbour table of the kernel, else they lose each other
(dmesg: neighbor table overflow): set net.ipv4.neigh.default.gc_thresh2 and gc_thresh3 to 131072 with sysctl.
--smallest: 4 nodes, without recovery and submit, which other benchmarks run.
"""

import json
import os
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks import scale_jobs, scale_storm, submit_rate
from benchmarks.cluster import inside, sandbox
from benchmarks.measure import arguments, judged
from benchmarks.recovery_deaths import LEFT, dead_node
from benchmarks.recovery_runs import GPUS
from slurm_plugin.sandbox import Sandbox

SMALL: Final = 2  # nodes of the small job
HOUR_S: Final = 3600.0
ENTRIES: Final = 10_000
# The most that a cluster of any size may show. docs/explanation/measurements.md has the same table.
LIMITS: Final[Mapping[str, float]] = {
    "requests to slurmctld for each node of a job": 3.0,
    "requests to slurmctld for a job, beside its nodes'": 40.0,
    "requests to slurmctld for an hour of a job": 60.0,
    "bytes per second, a node of a job": 2000.0,
    "bytes per second, a job's first node, for each node": 500.0,
    "MB of memory, a job's supervisor": 30.0,
    "bytes of a job's log for each node": 50.0,
    "MB of memory, the worker with 10,000 ends": 60.0,
    "seconds of CPU, the worker with 10,000 ends": 5.0,
}


class Figure(NamedTuple):
    """A measured value, and its name. LIMITS has the limits."""

    name: str
    value: float


def jobs(box: Sandbox, options: Namespace) -> Iterator[Figure]:
    """Run the small and the large job in both ways, and watch the large one of slurm_plugin."""
    asked = {}
    for way, submit in {"slurm_plugin": scale_jobs.ours, "sbatch alone": scale_jobs.plain}.items():
        for nodes in (SMALL, options.nodes):
            watch = submit is scale_jobs.ours and nodes == options.nodes
            scale_jobs.reset(box)
            start = time.monotonic()
            job = submit(box, f"{way.split()[0]}{nodes}", nodes)
            job.began(0)
            began, before = time.monotonic() - start, scale_jobs.requests(box)
            if watch:
                with scale_jobs.peak_memory(box) as peak:
                    per, first, last = scale_jobs.running(job, options.seconds)
                    scale_jobs.reset(box)
                size = len((job.directory / "job.out").read_bytes())
            after = scale_jobs.finished(job)
            found = before + after if watch else after
            asked[way, nodes] = found.total()
            changes = found["REQUEST_UPDATE_NODE"]
            assert not changes, f"{changes} updates of nodes whose prologs passed"
            if nodes > SMALL:
                yield Figure(f"seconds from submission to the first step, {way}", began)
    more = options.nodes - SMALL
    for way in ("slurm_plugin", "sbatch alone"):
        each = (asked[way, options.nodes] - asked[way, SMALL]) / more
        what = "" if way == "slurm_plugin" else ", sbatch alone"
        yield Figure(f"requests to slurmctld for each node of a job{what}", each)
        yield Figure(f"requests to slurmctld for a job, beside its nodes'{what}", asked[way, SMALL] - SMALL * each)
    yield Figure("requests to slurmctld for an hour of a job", per.total() * HOUR_S / options.seconds)
    yield Figure("bytes per second, a node of a job", last)
    yield Figure("bytes per second, a job's first node, for each node", first / options.nodes)
    yield Figure("MB of memory, a job's supervisor", peak[0])
    yield Figure("bytes of a job's log for each node", size / options.nodes)


def storm(box: Sandbox, options: Namespace) -> Iterator[Figure]:
    """Let all prologs fail at once."""
    found = scale_storm.failing(box, options.nodes)
    yield Figure("all prologs fail: nodes out of service", found.out)
    yield Figure("all prologs fail: seconds from submission to the last verdict", found.seconds)
    yield Figure("all prologs fail: requests to slurmctld for each node", found.requests.total() / options.nodes)


def recovery(box: Sandbox, options: Namespace) -> Iterator[Figure]:
    """Stop a node of a job, once with a spare node and once without."""
    nodes = max(options.nodes - LEFT, SMALL)
    for spares in (1, 0):
        with scale_jobs.peak_memory(box) as peak:
            found = dead_node(box, nodes, spares)
        how = "with a spare" if spares else "by a requeue"
        yield Figure(f"seconds from a node's death to the first step, {nodes} nodes, {how}", found.seconds)
        yield Figure("MB of memory, a job's supervisor", peak[0])


def spool(box: Sandbox, options: Namespace) -> Iterator[Figure]:
    """Let the worker serve the ends of many runs."""
    found = inside(box, "scale_spool_inside", str(options.entries), user="slurm")
    yield Figure("milliseconds to write the end of a run, while there are others", found["put_s"] * 1e3)
    yield Figure("seconds, the worker with 10,000 ends", found["seconds"])
    yield Figure("seconds of CPU, the worker with 10,000 ends", found["cpu_s"])
    yield Figure("MB of memory, the worker with 10,000 ends", found["peak_mb"])


def submit(box: Sandbox, _options: Namespace) -> Iterator[Figure]:
    """Submit jobs with and without a policy. It changes slurm.conf, so it is the last part."""
    found = submit_rate.measured(box, 1, submit_rate.JOBS)
    for kind, blocks in found.items():
        yield Figure(f"submissions per second, {kind}", blocks[0].rate)


PARTS: Final[Mapping[str, Callable[[Sandbox, Namespace], Iterator[Figure]]]] = {
    "jobs": jobs, "storm": storm, "recovery": recovery, "spool": spool, "submit": submit,
}  # fmt: skip


def missed(figures: list[Figure]) -> list[str]:
    """Return a message for each figure above its limit."""
    return [
        f"{name}: {value:.1f}, the limit is {LIMITS[name]:g}"
        for name, value in figures
        if name in LIMITS and value > LIMITS[name]
    ]


def show(figure: Figure) -> None:
    """Print a line of the table."""
    limit = f"{LIMITS[figure.name]:>9g}" if figure.name in LIMITS else ""
    print(f"{figure.name:76}{figure.value:>10.2f}{limit}", flush=True)


def main() -> int:
    """Measure, print and judge."""
    parser = arguments(__doc__)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--parts", nargs="+", choices=[*PARTS], default=[*PARTS])
    parser.add_argument("--seconds", type=float, default=60.0, help="to watch the running job [default: 60]")
    parser.add_argument("--root", type=Path, help="the root of another release, as for `sandbox up --root`")
    parser.add_argument("--json", action="store_true", help="one object instead of the table")
    parser.set_defaults(entries=ENTRIES)
    options = parser.parse_args()
    if options.smallest:
        options.nodes, options.seconds, options.entries = 2 * SMALL, 1.0, 40
        options.parts = [part for part in options.parts if part not in ("recovery", "submit")]
    if options.nodes <= SMALL:
        parser.error(f"accepted is --nodes of {SMALL + 1} or more")
    figures = []
    start = time.monotonic()
    with sandbox(options.nodes, GPUS, options.root) as box:
        figures.append(Figure("seconds, start of the sandbox", time.monotonic() - start))
        if not options.json:
            print(f"{f'{options.nodes} nodes, Slurm ' + version(box):76}{'found':>10}{'limit':>9}")
            show(figures[0])
        for part in (part for part in PARTS if part in options.parts):
            for figure in PARTS[part](box, options):
                figures.append(figure)
                if not options.json:
                    show(figure)
    if options.json:
        print(json.dumps({"nodes": options.nodes, "load": os.getloadavg()[1], "figures": figures}))
    else:
        print(f"load of this machine, last 5 minutes: {os.getloadavg()[1]:.1f} on {os.cpu_count()} CPUs")
    return judged(missed(figures), smallest=options.smallest)


def version(box: Sandbox) -> str:
    """Return the release of Slurm in the sandbox."""
    return box.run(["sinfo", "--version"]).stdout.split()[-1]


if __name__ == "__main__":
    sys.exit(main())
