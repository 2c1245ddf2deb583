"""The part of benchmarks/jobs_list.py that runs inside the sandbox, so that entering it is not measured.

Arguments: the number of rounds, and of jobs. Prints for each way the median seconds, and those of slurmctld's CPU.
"""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from benchmarks.measure import rounds
from slurm_plugin.cli.nodeside import jobs
from slurm_plugin.slurm import connect
from slurm_plugin.slurm.listing import FREE, PLAIN
from slurm_plugin.slurm.parse import form

FIELDS = "%i %j %u %P %T %D %b %M %l %N %r %S %e %V %k %Z"  # those of the list that `squeue -o` has
CPU_OF_PROCESS = 2  # with ~pid in the upper bits, as in clock_getcpuclockid(3)
COMMAND = "/etc/slurm/slurm_plugin/bin/slurm-plugin"


def run(*argv: str) -> Callable[[], bytes]:
    """Return a call that runs a command."""
    return lambda: subprocess.run(argv, check=True, capture_output=True).stdout


def cpu() -> float:
    """Return the CPU seconds of slurmctld so far."""
    (pid,) = subprocess.run(["pgrep", "-x", "slurmctld"], check=True, capture_output=True, text=True).stdout.split()
    return time.clock_gettime((~int(pid) << 3) | CPU_OF_PROCESS)


def timed(ask: Callable[[], object], lines: int) -> Callable[[], tuple[float, float]]:
    """Return a call that measures the seconds of `ask` and of slurmctld. `ask` must return at least so many lines."""

    def once() -> tuple[float, float]:
        before, begin = cpu(), time.perf_counter()
        found = ask()
        seconds = time.perf_counter() - begin
        assert isinstance(found, str | bytes)
        assert len(found.splitlines()) >= lines, found
        return seconds, cpu() - before

    return once


def main() -> None:
    """Measure and print."""
    count, number = int(sys.argv[1]), int(sys.argv[2])
    query = jobs.query_of(jobs.JOBS.parsed(["--all"]))
    door = connect()
    ways = {
        "squeue -o": timed(run("squeue", "-h", "-a", "-t", "all", "-o", FIELDS), number),
        "squeue -O": timed(run("squeue", "-h", "-a", "-t", "all", "-O", form("|", PLAIN, FREE)), number),
        "list": timed(lambda: "\n".join(jobs.lines(jobs.find(door, query), query)), number),
        "slurm-plugin jobs --all": timed(run(COMMAND, "jobs", "--all"), number),
        "python3 -c pass": timed(run("/usr/bin/python3", "-IS", "-c", "print()"), 1),
    }
    found = rounds(ways, count)
    print(
        json.dumps(
            {name: [statistics.median(each) for each in zip(*all_, strict=True)] for name, all_ in found.items()}
        )
    )


if __name__ == "__main__":
    main()
