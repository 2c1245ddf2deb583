"""The part of benchmarks/slurm_door.py that runs inside the sandbox, so that entering it is not measured.

Arguments: the number of rounds, and the back ends of the door. Prints the median seconds of each way, by subject.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.measure import rounds
from slurm_plugin.slurm import connect
from slurm_plugin.slurm.parse import form

FIELDS = "%A %j %u %P %T %r %N %x %V %S %e %k"  # the fields of the door that `squeue -o` has


def run(*argv: str) -> Callable[[], bytes]:
    """Return a call that runs a command."""
    return lambda: subprocess.run(argv, check=True, capture_output=True).stdout


def door(backend: str) -> Any:
    """Return the door with this back end."""
    os.environ["SLURM_PLUGIN_BACKEND"] = backend
    found = connect()
    assert found.backend.startswith("pyslurm") is (backend == "pyslurm"), found.backend
    return found


def timed(ask: Callable[[], object], known: list[int] | None = None) -> Callable[[], float]:
    """Return a call that measures the seconds of `ask`, which must find the jobs `known` if they are given."""

    def once() -> float:
        begin = time.perf_counter()
        found = ask()
        seconds = time.perf_counter() - begin
        assert known is None or sorted(found) == known  # type: ignore[call-overload]
        return seconds

    return once


def main() -> None:
    """Measure and print."""
    doors = {f"door, {name}": door(name) for name in sys.argv[2:]}
    known, nodes = sorted(doors["door, cli"].jobs()), doors["door, cli"].nodes([])
    one, last = known[-1], str(known[-1])
    ways = {
        "one job": {
            "squeue -o": timed(run("squeue", "-h", "-t", "all", "-j", last, "-o", FIELDS)),
            "squeue --json": timed(run("squeue", "-j", last, "--json")),
            **{name: timed(partial(each.job, one)) for name, each in doors.items()},
        },
        f"{len(known)} jobs": {
            "squeue -o": timed(run("squeue", "-h", "-a", "-t", "all", "-o", FIELDS)),
            "squeue -O": timed(run("squeue", "-h", "-a", "-t", "all", "-O", form("|"))),
            "squeue --json": timed(run("squeue", "-a", "-t", "all", "--json")),
            **{name: timed(each.jobs, known) for name, each in doors.items()},
        },
        f"{len(nodes)} nodes": {
            "scontrol show node": timed(run("scontrol", "show", "node")),
            "sinfo --json": timed(run("sinfo", "--json")),
            **{name: timed(partial(each.nodes, [])) for name, each in doors.items()},
        },
    }
    found = {subject: rounds(each, int(sys.argv[1])) for subject, each in ways.items()}
    medians = {
        subject: {name: statistics.median(all_) for name, all_ in each.items()} for subject, each in found.items()
    }
    print(json.dumps(medians))


if __name__ == "__main__":
    main()
