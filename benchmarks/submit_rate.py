"""Measure submissions per second with and without our job_submit.lua, on one slurmctld. Part of benchmarks/submit.py.

slurmctld runs the plug-in for one submission at a time, so slow Lua code delays all submissions. A block is JOBS runs
of sbatch by parallel clients. Each round has one block of each kind, in a random order. The result is the median of
the rounds' ratios, because other load on the machine slows a whole round. The clients take most of a block's time, so
slurmctld's CPU per submission is shown, too. An empty job_submit.lua shows the cost of Slurm's own plug-in.
"""

import statistics
import tempfile
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import yaml

from benchmarks.cluster import inside
from benchmarks.measure import rounds
from slurm_plugin.sandbox import Sandbox
from slurm_plugin.site.configuration import SiteConfig
from slurm_plugin.site.lua import job_submit
from slurm_plugin.spec.policy_language import Policy
from tests.cluster.etc import Etc
from tests.waiting import until

LIMIT: Final = 0.95  # times the rate without a plug-in
CLIENTS: Final = 4
JOBS: Final = 400  # per block
OURS, NOTHING, WITHOUT = "our job_submit.lua, with a policy", "an empty job_submit.lua", "no job_submit plug-in"
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


class Block(NamedTuple):
    """The result of one block."""

    rate: float  # submissions per second
    cpu_s: float  # slurmctld's CPU per submission


def measured(box: Sandbox, runs: int, jobs: int) -> dict[str, list[Block]]:
    """Return the blocks of each kind, round by round."""
    policy = msgspec.convert(yaml.safe_load(POLICY)["policy"], Policy, strict=False)
    lua = {OURS: job_submit(SiteConfig(policy=policy)), NOTHING: EMPTY, WITHOUT: EMPTY}
    with tempfile.TemporaryDirectory() as kept:
        etc = Etc(box, Path(kept, "etc"))
        etc.settings(MinJobAge="2")  # slurmctld forgets the cancelled jobs before the next block
        return rounds({kind: partial(block, box, etc, kind, lua[kind], jobs) for kind in KINDS}, runs)


def block(box: Sandbox, etc: Etc, kind: str, lua: str, jobs: int) -> Block:
    """Configure the plug-in, or none, and submit the jobs."""
    plugins = "" if kind == WITHOUT else "lua"
    etc.lua(lua)
    etc.settings(JobSubmitPlugins=plugins)
    etc.reconfigure()
    line = ["JobSubmitPlugins", "=", plugins or "(null)"]
    until(lambda: line in [each.split() for each in config(box)], f"a slurmctld with {' '.join(line)}")
    rate, cpu_s, granted = inside(box, "submit_rate_inside", str(CLIENTS), str(jobs))
    assert granted == (kind == OURS), f"{kind}: a job {'has a' if granted else 'has no'} grant"
    return Block(rate, cpu_s)


def config(box: Sandbox) -> list[str]:
    """Return the lines of `scontrol show config`."""
    return box.run(["scontrol", "show", "config"], user="root").stdout.splitlines()


def shown(found: dict[str, list[Block]]) -> list[str]:
    """Print the table; return the limits that are missed."""
    print(f"{f'{CLIENTS} clients; x: median of the rounds':40}{'/s':>9}{'x':>7}{'slurmctld ms each':>20}{'x':>7}")
    missed = []
    for kind in KINDS:
        pairs = zip(found[kind], found[WITHOUT], strict=True)
        ratios = [(one.rate / without.rate, one.cpu_s / without.cpu_s) for one, without in pairs]
        rate_x, cpu_x = (statistics.median(column) for column in zip(*ratios, strict=True))
        rate, cpu_s = (statistics.median(column) for column in zip(*found[kind], strict=True))
        print(f"{kind:40}{rate:9.1f}{rate_x:7.2f}{cpu_s * 1e3:20.2f}{cpu_x:7.2f}")
        if kind == OURS and rate_x < LIMIT:
            missed.append(f"{kind}: {rate_x:.2f} x the rate without, the limit is {LIMIT}")
    return missed
