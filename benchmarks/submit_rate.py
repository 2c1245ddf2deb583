"""Submissions a second with our job_submit.lua and without, on one slurmctld: for benchmarks/submit.py.

slurmctld takes submissions one after the other through the plug-in, so what Lua takes is taken from all. A block is
many sbatch from several clients at once. Rounds have a block of each kind, in an order of their own, and what counts is
the median of the rounds' ratios: a machine that has other things to do slows all of a round. The CPU of slurmctld for
each submission says it without the clients, which take most of a block's time; a job_submit.lua that does nothing says
how much of it is Slurm's own plug-in.
"""

import json
import random
import statistics
import time
from typing import Final, NamedTuple

from slurm_plugin.sandbox import Sandbox

LIMIT: Final = 0.95  # of the rate without
LINE: Final = "JobSubmitPlugins=lua"
RECONFIGURED_S: Final = 20.0
SIZE: Final = 400  # submissions of a block
OURS, NOTHING, WITHOUT = "our job_submit.lua, with a policy", "a job_submit.lua of nothing", "no job_submit plug-in"
KINDS: Final = (WITHOUT, NOTHING, OURS)
EMPTY: Final = """
function slurm_job_submit(job, partitions, uid) return slurm.SUCCESS end
function slurm_job_modify(job, record, partitions, uid) return slurm.SUCCESS end
"""
POLICY: Final = """
policy:
  defaults: {time: 20m}
  rules:
  - {name: small, when: {partition: [debug]}, limit: {nodes: 2, time: 1h, retries: 1}, message: use main}
  - {name: ours, when: {partition: [private]}, allow: {user: [bob]}}
"""
# Runs in the controller's machine: 4 clients, each submits held jobs one after the other, then all are cancelled.
MEASURE: Final = """
import json, os, pathlib, subprocess, sys, threading, time

count = int(sys.argv[1])
argv = ["/usr/bin/sbatch", "--hold", "--output=/dev/null", "--comment=[sp1;retries=1;ib=auto]", "--wrap=true"]
slurmctld = next(
    path.parent for path in pathlib.Path("/proc").glob("[0-9]*/comm") if path.read_text() == "slurmctld\\n"
)


def cpu():
    fields = (slurmctld / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def client():
    for _ in range(count // 4):
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)


clients = [threading.Thread(target=client) for _ in range(4)]
before, start = cpu(), time.perf_counter()
for each in clients:
    each.start()
for each in clients:
    each.join()
took, used = time.perf_counter() - start, cpu() - before
last = subprocess.run([*argv, "--parsable"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
shown = subprocess.run(["scontrol", "show", "job", last], check=True, stdout=subprocess.PIPE, text=True).stdout
print(json.dumps([count // 4 * 4 / took, used / (count // 4 * 4), "sp1:{" in shown]))
subprocess.run(["scancel", "--user=alice"], check=True)
"""


class Block(NamedTuple):
    """What one block came to."""

    rate: float  # submissions a second
    cpu_s: float  # of slurmctld, for each


def measured(box: Sandbox, rounds: int, lua: str) -> dict[str, list[Block]]:
    """The blocks of each kind, round by round, after one that warms caches; `lua` is our job_submit.lua."""
    found: dict[str, list[Block]] = {kind: [] for kind in KINDS}
    etc = box.directory / "etc/slurm"
    whole = (etc / "slurm.conf").read_text(encoding="utf-8")
    assert f"{LINE}\n" in whole
    lean = f"{whole}MinJobAge=2\n"  # cancelled jobs of one block are none of the next one's
    for number in range(rounds + 1):
        for kind in random.sample(KINDS, len(KINDS)):
            (etc / "slurm.conf").write_text(
                lean.replace(f"{LINE}\n", "") if kind == WITHOUT else lean, encoding="utf-8"
            )
            (etc / "job_submit.lua").write_text(lua if kind == OURS else EMPTY, encoding="utf-8")
            reconfigure(box, kind)
            said = box.run(["/usr/bin/python3", "-c", MEASURE, str(SIZE)], timeout=300).stdout
            rate, cpu_s, granted = json.loads(said)
            assert granted == (kind == OURS), f"{kind}: a job {'has a' if granted else 'has no'} grant"
            if number:
                found[kind].append(Block(rate, cpu_s))
    return found


def reconfigure(box: Sandbox, kind: str) -> None:
    """Have slurmctld take the plug-in, or leave it."""
    box.run(["scontrol", "reconfigure"], user="root")
    wanted, until = "(null)" if kind == WITHOUT else LINE.partition("=")[2], time.monotonic() + RECONFIGURED_S
    while not any(
        line.split() == ["JobSubmitPlugins", "=", wanted]
        for line in box.run(["scontrol", "show", "config"], user="root").stdout.splitlines()
    ):
        assert time.monotonic() < until, f"slurmctld has not taken JobSubmitPlugins={wanted}"
        time.sleep(0.2)


def report(found: dict[str, list[Block]]) -> int:
    """The table; 1 where ours is too slow."""
    print(f"{'4 clients; x: median of the rounds':40}{'/s':>9}{'x':>7}{'slurmctld ms each':>20}{'x':>7}")
    rate_x = 1.0
    for kind in KINDS:
        rounds = zip(found[kind], found[WITHOUT], strict=True)
        ratios = [(one.rate / without.rate, one.cpu_s / without.cpu_s) for one, without in rounds]
        rate_x, cpu_x = (statistics.median(column) for column in zip(*ratios, strict=True))
        rate, cpu_s = (statistics.median(column) for column in zip(*found[kind], strict=True))
        print(f"{kind:40}{rate:9.1f}{rate_x:7.2f}{cpu_s * 1e3:20.2f}{cpu_x:7.2f}")
    return int(rate_x < LIMIT)  # of the last one
