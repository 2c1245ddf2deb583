"""Compare `slurm-plugin jobs` with `squeue -o` for 2,000 jobs: the time, and what it costs the controller.

    .venv/bin/python benchmarks/jobs_list.py [--root DIR] [--jobs 2000] [--rounds 15] [--smallest]

This starts a sandbox with this machine's Slurm, or that of a root (`slurm-plugin sandbox root`), and submits held jobs.
Each round runs all ways in a random order. The table has medians, and ratios to `squeue -o` with the same fields, as
far as it has them. `list` is everything between the question and the last line of the table, in a process that runs
already; the whole command also starts Python. Exits 1 if `list` costs slurmctld more than 1.3 times the CPU of
`squeue -o`, which all users share, or takes more than 3 times its time, for which only the caller waits. Results:
docs/explanation/measurements.md.
"""

import sys
from pathlib import Path

from benchmarks.cluster import hold_jobs, inside, sandbox
from benchmarks.measure import arguments, judged

LIMITS = {"time": 3.0, "slurmctld's CPU": 1.3}  # times `squeue -o`


def main() -> int:
    """Measure, print and judge."""
    parser = arguments(__doc__)
    parser.add_argument("--root", type=Path, default=Path("/"), help="of another release, from `sandbox root`")
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    if options.smallest:
        options.jobs, options.rounds = 2, 1
    with sandbox(2, root=options.root) as box:
        hold_jobs(box, options.jobs, "--job-name=train", user="alice")
        version = box.run(["slurmctld", "-V"], user="root").stdout.split()[-1]
        found = inside(box, "jobs_list_inside", str(options.rounds), str(options.jobs), user="alice")
    return judged(shown(version, options.jobs, found), smallest=options.smallest)


def shown(version: str, jobs: int, found: dict[str, list[float]]) -> list[str]:
    """Print the table; return the limits that are missed."""
    missed = []
    base = found["squeue -o"]
    print(f"Slurm {version}, {jobs} jobs                 wall               slurmctld's CPU")
    for name, (wall, cpu) in found.items():
        print(f"  {name:26} {wall * 1e3:8.1f} ms {wall / base[0]:5.2f} x {cpu * 1e3:8.2f} ms {cpu / base[1]:5.2f} x")
    for (what, limit), mine, theirs in zip(LIMITS.items(), found["list"], base, strict=True):
        if mine > limit * theirs:
            missed.append(f"list, {what}: {mine / theirs:.2f} x squeue -o, the limit is {limit}")
    return missed


if __name__ == "__main__":
    sys.exit(main())
