"""What the prolog costs a node: CPU and time of guard, Python and forked checks beside a bare Python, in one run.

    .venv/bin/python benchmarks/prechecks.py [--runs 40] [--processes 100 3000] [-- CHECKER ARGUMENT...]

Root. A site is rendered as `site render` does, with the system's own interpreter, and its prolog run as slurmd runs it,
on a job of this node with the default checks; another checker after `--` beside it. Each is set against
`/usr/bin/python3 -I -S -c pass`, in rounds of an order of their own: medians, and the multiples of that. The processes
that a node has besides are sleepers, made for it and ended afterwards. Exits 1 where the prolog costs more CPU than 4.5
times the bare Python with up to 1,000 processes, or 9 times with more.
"""

import argparse
import os
import random
import signal
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

PYTHON = "/usr/bin/python3"
BARE, OURS, OTHER = f"{PYTHON} -I -S -c pass", "our prolog", "the other checker"
LIMITS = {1000: 4.5, 10**9: 9.0}  # up to so many processes: times the CPU of the bare Python
ENVIRON = {"SLURM_JOB_COMMENT": "[sp1;retries=1;ib=auto]", "SLURM_JOB_UID": "0", "SLURM_JOB_GID": "0"}


def once(argv: Sequence[str], environ: Mapping[str, str]) -> tuple[float, float]:
    """CPU seconds of one run with all that it waited for, and wall seconds."""
    start = time.perf_counter()
    null = os.open(os.devnull, os.O_RDWR)
    pid = os.posix_spawn(argv[0], argv, environ, file_actions=[(os.POSIX_SPAWN_DUP2, null, fd) for fd in (0, 1, 2)])
    _, status, usage = os.wait4(pid, 0)
    os.close(null)
    assert status == 0 or argv[0] != PYTHON, status
    return usage.ru_utime + usage.ru_stime, time.perf_counter() - start


@contextmanager
def sleepers(wanted: int) -> Iterator[int]:
    """As many processes as a busy node has; those that are there already count. How many there are then."""
    here = sum(path.name.isdigit() for path in Path("/proc").iterdir())
    made = []
    try:
        for _ in range(max(wanted - here, 0)):
            pid = os.fork()
            if pid == 0:
                signal.pause()
                os._exit(0)
            made.append(pid)
        yield max(wanted, here)
    finally:
        for pid in made:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def rendered(directory: Path) -> Path:
    """The prolog of a site in this directory: its defaults, less what this machine may not have."""
    from slurm_plugin.site import render_site  # noqa: PLC0415 - found by the path that main sets
    from slurm_plugin.siteconfig import load  # noqa: PLC0415

    site = directory / "site.yaml"
    site.write_text(f"run_directory: {directory}/run\nprechecks: {{disk-size: {{root: 1MB, shm: 1MB, cache: null}}}}\n")
    render_site(load(site), directory / "site", root=str(directory / "site"))
    return directory / "site/hooks/prolog"


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--processes", type=int, nargs="+", default=[100, 3000])
    parser.add_argument("checker", nargs="*", help="after --: another checker, by its absolute path")
    options = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parents[1]))
    slow = False
    with tempfile.TemporaryDirectory() as name:
        prolog = rendered(Path(name))
        node = socket.gethostname()
        job = {**ENVIRON, "SLURM_JOB_ID": "7", "SLURMD_NODENAME": node, "SLURM_JOB_NODELIST": node}
        todo = {BARE: ([PYTHON, "-I", "-S", "-c", "pass"], {}), OURS: ([str(prolog)], job)}
        if options.checker:
            todo[OTHER] = (options.checker, {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})
        for wanted in options.processes:
            with sleepers(wanted) as processes:
                slow |= measured(todo, options.runs, processes)
    return int(slow)


def measured(todo: Mapping[str, tuple[list[str], dict[str, str]]], runs: int, processes: int) -> bool:
    """Rounds of all, and their table; whether ours is above its limit."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in todo}
    order = list(todo)
    for number in range(runs + 3):
        random.shuffle(order)
        for name in order:
            spent = once(*todo[name])
            if number >= 3:  # caches are warm
                times[name].append(spent)
    middle = {name: [statistics.median(column) for column in zip(*spent, strict=True)] for name, spent in times.items()}
    print(f"{f'{processes} processes':32}{'CPU ms':>8}{'x':>7}{'wall ms':>10}{'x':>7}")
    for name, (cpu, wall) in middle.items():
        bare_cpu, bare_wall = middle[BARE]
        print(f"{name:32}{cpu * 1000:8.1f}{cpu / bare_cpu:7.2f}{wall * 1000:10.1f}{wall / bare_wall:7.2f}")
    limit = next(times for most, times in LIMITS.items() if processes <= most)
    return middle[OURS][0] > limit * middle[BARE][0]


if __name__ == "__main__":
    sys.exit(main())
