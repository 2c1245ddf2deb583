"""Compare our node lists of 10,000 and 100,000 hosts with ClusterShell, python-hostlist and scontrol.

    .venv/bin/python benchmarks/nodelists.py [--smallest]

Prints milliseconds of CPU, the best of 5 runs, also for our hostfiles. In brackets are ratios to ours. ClusterShell
and python-hostlist are installed into a cache (benchmarks/others.py); scontrol is this machine's. Exits 1 if expanding
takes longer than with python-hostlist, or folding more than a fifth of its time.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path

from benchmarks.measure import arguments, best, judged, process
from benchmarks.others import interpreter
from hostfiles import FORMATS, Allocation, Device, Host, from_lists
from hostfiles.nodelist import expand, fold

SCONTROL = "/usr/bin/scontrol"
FIRST = IPv4Address("10.0.0.1")
ROOT = Path(__file__).parents[1]


def ours(text: str, names: list[str], runs: int) -> dict[str, float]:
    """Return the CPU seconds of each step: expand, fold, make an allocation, write each format."""
    assert expand(text) == names
    assert expand(fold(names)) == names
    allocation = Allocation(tuple(host(number, name) for number, name in enumerate(names)))
    steps: dict[str, Callable[[], object]] = {
        "expand": partial(expand, text),
        "fold": partial(fold, names),
        "allocation": partial(from_lists, text, slots=8),
        **{name: partial(form, allocation, 61000, 0) for name, form in FORMATS.items()},
    }
    return {name: best(step, runs) for name, step in steps.items()}


def host(number: int, name: str) -> Host:
    """Return a host with the address and the device that Ascend's formats need."""
    address = str(FIRST + number)
    return Host(name, address=address, devices=(Device(0, address, number),))


def scontrol(text: str, names: list[str], runs: int) -> dict[str, float]:
    """Return the CPU seconds of `scontrol show hostnames` and `show hostlist`, including the start of scontrol."""
    with tempfile.TemporaryDirectory() as directory:
        conf, listed = Path(directory, "slurm.conf"), Path(directory, "names")
        conf.write_text("ClusterName=benchmark\nSlurmctldHost=localhost\n")
        listed.write_text("".join(f"{name}\n" for name in names))
        environ = {**os.environ, "SLURM_CONF": str(conf)}
        expanded = [process([SCONTROL, "show", "hostnames", text], environ) for _ in range(runs)]
        folded = [process([SCONTROL, "show", "hostlist", str(listed)], environ) for _ in range(runs)]
    assert expanded[0][1].split() == names == expand(folded[0][1].strip())
    return {"expand": min(spent.cpu for spent, _ in expanded), "fold": min(spent.cpu for spent, _ in folded)}


def node_list(size: int) -> tuple[str, list[str]]:
    """Return a node list and its names. scontrol accepts at most 65,536 names in a range."""
    parts = [f"{start:06d}-{min(start + 49_999, size):06d}" for start in range(1, size + 1, 50_000)]
    return f"n[{','.join(parts)}]", [f"n{number:06d}" for number in range(1, size + 1)]


def main() -> int:
    """Print one table per size, and judge."""
    options = arguments(__doc__).parse_args()
    sizes, runs = ((10,), 1) if options.smallest else ((10_000, 100_000), 5)
    lists = [node_list(size) for size in sizes]
    python = interpreter("python-hostlist==2.3.0", "ClusterShell==1.10.1")
    said = subprocess.run(
        [python, "-m", "benchmarks.nodelists_others", str(runs)],
        input=json.dumps(lists), stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT,
    ).stdout  # fmt: skip
    missed = []
    for (text, names), others in zip(lists, json.loads(said), strict=True):
        own = ours(text, names, runs)
        for what, seconds in scontrol(text, names, runs).items():
            others[what]["scontrol"] = seconds
        print(f"{len(names)} hosts, ms of CPU")
        for what, mine in own.items():
            beside = [f"{name} {each * 1e3:.1f} ({each / mine:.1f}x)" for name, each in others.get(what, {}).items()]
            print("  ".join((f"  {what:<14}{mine * 1e3:8.1f}", *beside)))
        for what, limit in (("expand", 1.0), ("fold", 0.2)):
            ratio = own[what] / others[what]["python-hostlist"]
            if ratio > limit:
                missed.append(f"{what} of {len(names)} hosts: {ratio:.2f} x python-hostlist, the limit is {limit}")
    return judged(missed, smallest=options.smallest)


if __name__ == "__main__":
    sys.exit(main())
