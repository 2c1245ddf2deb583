"""Submissions a second with our job_submit.lua and without, on one slurmctld: for benchmarks/submit.py.

slurmctld takes submissions one after the other through the plug-in, so what Lua takes is taken from all. The blocks of
both kinds alternate; a block is many sbatch from several clients at once.
"""

import json
import statistics
from typing import Final

from slurm_plugin.sandbox import Sandbox

LIMIT: Final = 0.95  # of the rate without
POLICY: Final = """
policy:
  defaults: {time: 20m}
  rules:
  - {name: small, when: {partition: [debug]}, limit: {nodes: 2, time: 1h, retries: 1}, message: use main}
  - {name: ours, when: {partition: [private]}, allow: {user: [bob]}}
"""
# Runs in the controller's machine: 4 clients, each submits held jobs one after the other, then all are cancelled.
MEASURE: Final = """
import json, subprocess, sys, threading, time

count = int(sys.argv[1])
argv = ["/usr/bin/sbatch", "--hold", "--output=/dev/null", "--comment=[sp1;retries=1;ib=auto]", "--wrap=true"]


def client():
    for _ in range(count // 4):
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)


clients = [threading.Thread(target=client) for _ in range(4)]
start = time.perf_counter()
for each in clients:
    each.start()
for each in clients:
    each.join()
print(json.dumps((count // 4 * 4) / (time.perf_counter() - start)))
subprocess.run(["scancel", "--user=alice"], check=True)
"""


def measured(box: Sandbox, blocks: int, size: int) -> tuple[float, float]:
    """Median submissions a second without our job_submit.lua, and with it and a policy."""
    rates: dict[str, list[float]] = {"": [], "lua": []}
    conf = box.directory / "etc/slurm/slurm.conf"
    whole = conf.read_text(encoding="utf-8")
    bare = "".join(line for line in whole.splitlines(keepends=True) if not line.startswith("JobSubmitPlugins="))
    for number in range(2 * blocks):
        kind = ("", "lua")[number % 2]
        conf.write_text(whole if kind else bare, encoding="utf-8")
        box.run(["scontrol", "reconfigure"], user="root")
        done = box.run(["/usr/bin/python3", "-c", MEASURE, str(size)], timeout=300)
        rates[kind].append(json.loads(done.stdout))
    conf.write_text(whole, encoding="utf-8")
    return statistics.median(rates[""]), statistics.median(rates["lua"])


def report(without: float, ours: float) -> int:
    """The table; 1 where ours is too slow."""
    print(f"{'submissions a second, 4 clients':40}{'/s':>9}{'x':>7}")
    print(f"{'without a job_submit plug-in':40}{without:9.1f}{1:7.2f}")
    print(f"{'our job_submit.lua, with a policy':40}{ours:9.1f}{ours / without:7.2f}")
    return int(ours / without < LIMIT)
