"""What a submission costs: what `slurm-plugin sbatch` adds to it, what job_submit.lua does, what making a script does.

    .venv/bin/python benchmarks/submit.py [--rounds 60] [--only wrapper|render|rate]

render: CPU of `render` and `submit --dry-run` beside submitit making a comparable script; limit 1.3 times that. rate:
submissions a second with our job_submit.lua and a policy beside those without, and slurmctld's CPU; limit 95 %.
wrapper: beside raw sbatch, on a sandbox of its own, inside the controller's machine. Each round submits the same held
job in every way, in an order of its own, and cancels it: with sbatch, and with the deployed command under sbatch's
name, for a script without features, for one on stdin, and for one with features. CPU is of the process and its
children, from the start to the end. Medians, what ours add, and their ratio to sbatch; limit 60 ms of CPU more, and the
time is as long only on a machine that has nothing else to do. Exits 1 where a limit is missed.
"""

import argparse
import json
import os
import sys
from pathlib import Path

import msgspec
import yaml

sys.path.insert(0, str(Path(__file__).parents[1]))  # before this directory, which holds a hostfiles.py
from benchmarks import submit_rate, submit_render
from slurm_plugin.policy.language import Policy
from slurm_plugin.sandbox import Sandbox
from slurm_plugin.site import job_submit
from slurm_plugin.siteconfig import SiteConfig

LIMIT_S = 0.060
OURS = "/etc/slurm/slurm_plugin/bin/slurm-plugin"
SBATCH = "sbatch"
# Runs in the controller's machine, so that no way of submitting pays for getting there.
MEASURE = """
import json, os, random, resource, statistics, subprocess, sys, time

rounds = int(sys.argv[1])
open("plain.sh", "w").write("#!/bin/sh\\n#SBATCH -N1\\nhostname\\n")
open("features.sh", "w").write("#!/bin/sh\\n#SBATCH -N1\\n#PLUGIN retries=1 grace=1m\\nhostname\\n")
if not os.path.exists("sbatch"):
    os.symlink(sys.argv[2], "sbatch")
held = ["--hold", "--parsable", "--output=/dev/null"]
ways = {
    "sbatch": (["/usr/bin/sbatch", *held, "plain.sh"], False),
    "ours": (["./sbatch", *held, "plain.sh"], False),
    "ours, script on stdin": (["./sbatch", *held], True),
    "ours, with features": (["./sbatch", *held, "features.sh"], False),
    "sbatch, script on stdin": (["/usr/bin/sbatch", *held], True),
}


def cpu():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def once(argv, stdin):
    before, start = cpu(), time.perf_counter()
    with open("plain.sh" if stdin else os.devnull) as given:
        said = subprocess.run(argv, check=True, stdin=given, stdout=subprocess.PIPE).stdout
    spent = cpu() - before, time.perf_counter() - start
    subprocess.run(["scancel", said.decode().strip()], check=True)
    return spent


found = {name: [] for name in ways}
for number in range(rounds + 3):
    for name in random.sample(list(ways), len(ways)):
        spent = once(*ways[name])
        if number >= 3:  # caches are warm
            found[name].append(spent)
print(json.dumps({name: [statistics.median(column) for column in zip(*spent)] for name, spent in found.items()}))
"""


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--only", choices=("wrapper", "render", "rate"), help="one of the three")
    options = parser.parse_args()
    code = 0
    if options.only in (None, "render"):
        code |= submit_render.report(submit_render.measured(options.rounds))
    if options.only == "render":
        return code
    box = Sandbox(Path(f"/var/tmp/slurm_plugin-benchmark-{os.getpid()}"))
    try:
        box.up(1, 0)
        if options.only in (None, "wrapper"):
            said = box.run(["/usr/bin/python3", "-c", MEASURE, str(options.rounds), OURS], timeout=600)
            found: dict[str, tuple[float, float]] = json.loads(said.stdout)
            code |= report(found, options.rounds)
        if options.only in (None, "rate"):
            policy = yaml.safe_load(submit_rate.POLICY)["policy"]
            lua = job_submit(SiteConfig(policy=msgspec.convert(policy, Policy, strict=False)))
            code |= submit_rate.report(submit_rate.measured(box, max(options.rounds // 4, 1), lua))
    finally:
        box.down()
    return code


def report(found: dict[str, tuple[float, float]], rounds: int) -> int:
    """The table; 1 where ours add too much."""
    base = found[SBATCH]
    print(f"{f'median of {rounds}':28}{'CPU ms':>9}{'x':>7}{'adds':>7}{'wall ms':>10}{'x':>7}{'adds':>7}")
    for name, spent in found.items():
        ratios = [one / other for one, other in zip(spent, base, strict=True)]
        added = [(one - other) * 1e3 for one, other in zip(spent, base, strict=True)]
        cpu, wall = (time * 1e3 for time in spent)
        print(f"{name:28}{cpu:9.1f}{ratios[0]:7.2f}{added[0]:7.1f}{wall:10.1f}{ratios[1]:7.2f}{added[1]:7.1f}")
    return int(max(cpu for cpu, _ in found.values()) - base[0] > LIMIT_S)


if __name__ == "__main__":
    sys.exit(main())
