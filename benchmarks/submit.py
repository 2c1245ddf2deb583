"""Measure the cost of a submission: of making a script, of job_submit.lua, and of `slurm-plugin sbatch`.

    .venv/bin/python benchmarks/submit.py [--rounds 60] [--only wrapper|render|rate] [--smallest]

render: CPU of `render` and `submit --dry-run`, compared with submitit, which makes a comparable script. Limit: 1.3
times submitit's.
rate: submissions per second and slurmctld's CPU, with our job_submit.lua and a policy, and without them. Limit: 95 % of
the rate without them.
wrapper: on the controller's machine of a sandbox, each round submits the same held job in every way, in a random order,
and cancels it: with sbatch, and with `slurm-plugin` under sbatch's name, for a script as a file, on stdin, and with
features. The table has medians, and their differences and ratios to sbatch. CPU is that of the process and its
children. Limit: 60 ms of CPU more than sbatch. The wall time has no limit, because it depends on other load.

Exits 1 if a limit is missed.
"""

import sys

from benchmarks import submit_rate, submit_render
from benchmarks.cluster import inside, sandbox
from benchmarks.measure import Spent, arguments, judged, show

LIMIT_S = 0.060  # of CPU more than sbatch
OURS = "/etc/slurm/slurm_plugin/bin/slurm-plugin"


def main() -> int:
    """Measure, print and judge."""
    parser = arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--only", choices=("wrapper", "render", "rate"), help="one of the three")
    options = parser.parse_args()
    blocks, jobs = max(options.rounds // 4, 1), submit_rate.JOBS
    if options.smallest:
        options.rounds, blocks, jobs = 1, 1, submit_rate.CLIENTS
    missed = []
    if options.only in (None, "render"):
        missed += submit_render.shown(submit_render.measured(options.rounds))
    if options.only != "render":
        with sandbox(1) as box:
            if options.only in (None, "wrapper"):
                found = inside(box, "submit_wrapper_inside", str(options.rounds), OURS)
                missed += shown({name: Spent(*spent) for name, spent in found.items()}, options.rounds)
            if options.only in (None, "rate"):
                missed += submit_rate.shown(submit_rate.measured(box, blocks, jobs))
    return judged(missed, smallest=options.smallest)


def shown(middle: dict[str, Spent], rounds: int) -> list[str]:
    """Print the table of the wrapper; return the limits that are missed."""
    show(f"submitting, median of {rounds}", middle)
    base = next(iter(middle.values()))
    added = max(spent.cpu for spent in middle.values()) - base.cpu
    return [f"{added * 1e3:.1f} ms of CPU more than sbatch, the limit is 60"] if added > LIMIT_S else []


if __name__ == "__main__":
    sys.exit(main())
