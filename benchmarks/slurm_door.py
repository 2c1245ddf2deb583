"""Compare the door to Slurm with Slurm's own commands: the time to read one job, 2,000 jobs and all nodes.

    .venv/bin/python benchmarks/slurm_door.py [--root DIR] [--jobs 2000] [--rounds 15] [--smallest]

This starts a sandbox of 50 nodes with this machine's Slurm, or that of a root (`slurm-plugin sandbox root`), and
measures each back end; pyslurm only if the root has it. Each round runs all ways in a random order. The table has
medians, and ratios to `squeue -o` with the fields that it has (for nodes: to `scontrol show node`). Exits 1 if a back
end reads all jobs in more than 1.5 times the time of `squeue -o`. Results: docs/explanation/measurements.md.
"""

import sys
from pathlib import Path

from benchmarks.cluster import hold_jobs, inside, sandbox
from benchmarks.measure import arguments, judged
from slurm_plugin.sandbox.image import python
from slurm_plugin.sandbox.machine import PYTHON

LIMIT = 1.5  # times `squeue -o`, to read all jobs


def main() -> int:
    """Measure, print and judge."""
    parser = arguments(__doc__)
    parser.add_argument("--root", type=Path, default=Path("/"), help="of another release, from `sandbox root`")
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    nodes = 50
    if options.smallest:
        nodes, options.jobs, options.rounds = 2, 2, 1
    interpreter = python(options.root)
    backends = ["cli"] if interpreter == PYTHON else ["cli", "pyslurm"]
    with sandbox(nodes, root=options.root) as box:
        hold_jobs(box, options.jobs, "--exclude=n1", user="root")
        version = box.run(["slurmctld", "-V"], user="root").stdout.split()[-1]
        words = (str(options.rounds), *backends)
        medians = inside(box, "slurm_door_inside", *words, user="root", python=interpreter)
    return judged(shown(version, medians), smallest=options.smallest)


def shown(version: str, medians: dict[str, dict[str, float]]) -> list[str]:
    """Print the tables; return the limits that are missed."""
    missed = []
    for subject, ways in medians.items():
        base = next(iter(ways.values()))
        print(f"Slurm {version}, {subject}")
        for name, seconds in ways.items():
            print(f"  {name:20} {seconds * 1000:8.1f} ms {seconds / base:6.2f} x")
            if subject.endswith(" jobs") and name.startswith("door") and seconds > LIMIT * base:
                missed.append(f"{name}, {subject}: {seconds / base:.2f} x squeue -o, the limit is {LIMIT}")
    return missed


if __name__ == "__main__":
    sys.exit(main())
