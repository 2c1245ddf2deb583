"""What the door to Slurm costs beside Slurm's own commands: one job, 2,000 jobs, all nodes; each room behind it.

    .venv/bin/python benchmarks/slurm_door.py [--root DIR] [--jobs 2000] [--rounds 15]

On a real Slurm in a sandbox of its own, this machine's or that of a root (`slurm-plugin sandbox root`); pyslurm is
measured where the root has it. All ways are asked in turn, round after round; medians, and ratios to `squeue -o` of the
fields that it knows (for nodes to `scontrol show node`). Beside it `squeue -O` with all fields that the door asks for.
Exits 1 where 2,000 jobs cost more than 1.5 times `squeue -o`. Results: docs/slurm.md.
"""

import argparse
import json
import os
import sys
from pathlib import Path

from slurm_plugin.sandbox import Sandbox

NODES = 50
LIMIT = 1.5  # times `squeue -o`, for all jobs
PYSLURM = "/opt/pyslurm/bin/python3"
SUBMIT = (
    "cd /tmp; i=0; while [ $i -lt $1 ]; do i=$((i+1)); "
    "sbatch --hold --output=/dev/null --comment='[sp1;retries=3;ib=auto]' --exclude=n1 --wrap true >/dev/null; done"
)
# Runs in the controller's machine, so that no way of asking pays for getting there.
MEASURE = """
import json, os, statistics, subprocess, sys, time
from slurm_plugin.slurm import connect
from slurm_plugin.slurm.records import form

rounds, backends = int(sys.argv[1]), sys.argv[2:]
every = form("|")
fields = "%A %j %u %P %T %r %N %x %V %S %e %k"


def run(*argv):
    return lambda: subprocess.run(argv, check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE).stdout


def door(backend):
    os.environ["SLURM_PLUGIN_BACKEND"] = backend
    found = connect()
    assert found.backend.startswith("pyslurm") is (backend == "pyslurm"), found.backend
    return found


doors = {backend: door(backend) for backend in backends}
known = sorted(doors["cli"].jobs())
one, last = known[-1:], str(known[-1])
ways = {
    "one job": {
        "squeue -o": run("squeue", "-h", "-t", "all", "-j", last, "-o", fields),
        "squeue --json": run("squeue", "-j", last, "--json"),
        **{f"door, {name}": lambda each=each: each.job(one[0]) for name, each in doors.items()},
    },
    f"{len(known)} jobs": {
        "squeue -o": run("squeue", "-h", "-a", "-t", "all", "-o", fields),
        "squeue -O": run("squeue", "-h", "-a", "-t", "all", "-O", every),
        "squeue --json": run("squeue", "-a", "-t", "all", "--json"),
        **{f"door, {name}": lambda each=each: each.jobs() for name, each in doors.items()},
    },
    f"{len(doors['cli'].nodes([]))} nodes": {
        "scontrol show node": run("scontrol", "show", "node"),
        "sinfo --json": run("sinfo", "--json"),
        **{f"door, {name}": lambda each=each: each.nodes([]) for name, each in doors.items()},
    },
}
seconds = {}
for _ in range(rounds):
    for subject, each in ways.items():
        for name, ask in each.items():
            found = None  # what was asked before goes now
            begin = time.perf_counter()
            found = ask()
            seconds.setdefault(subject, {}).setdefault(name, []).append(time.perf_counter() - begin)
            if name.startswith("door") and subject.endswith(" jobs"):
                assert sorted(found) == known
medians = {subject: {name: statistics.median(all_) for name, all_ in each.items()} for subject, each in seconds.items()}
json.dump(medians, sys.stdout)
"""


def main() -> int:
    """Measure, print a table, judge."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--root", type=Path, default=Path("/"), help="of another release, from `sandbox root`")
    options.add_argument("--jobs", type=int, default=2000)
    options.add_argument("--rounds", type=int, default=15)
    given = options.parse_args()
    backends = ["cli", "pyslurm"] if (given.root / PYSLURM[1:]).exists() else ["cli"]
    python = PYSLURM if "pyslurm" in backends else "/usr/bin/python3"
    box = Sandbox(Path(f"/var/tmp/slurm_plugin-door-{os.getpid()}"))
    box.up(NODES, 0, given.root)
    try:
        print(f"submitting {given.jobs} jobs", file=sys.stderr)
        box.run(["sh", "-c", SUBMIT, "sh", str(given.jobs)], user="root", timeout=300)
        version = box.run(["slurmctld", "-V"], user="root").stdout.split()[-1]
        said = box.run(
            [python, "-c", MEASURE, str(given.rounds), *backends],
            user="root", env={"PYTHONPATH": "/sandbox/src"}, timeout=300,
        ).stdout  # fmt: skip
    finally:
        box.down()
    return report(version, json.loads(said))


def report(version: str, medians: dict[str, dict[str, float]]) -> int:
    """The table, and whether the limit holds."""
    over = []
    for subject, ways in medians.items():
        base = next(iter(ways.values()))
        print(f"Slurm {version}, {subject}")
        for name, seconds in ways.items():
            print(f"  {name:20} {seconds * 1000:8.1f} ms {seconds / base:6.2f} x")
            if subject.endswith(" jobs") and name.startswith("door") and seconds > LIMIT * base:
                over.append(f"{name}: {seconds / base:.2f} x > {LIMIT} x")
    for line in over:
        print(line, file=sys.stderr)
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
