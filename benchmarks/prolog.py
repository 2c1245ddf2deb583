"""Measure what the prolog costs a node: the CPU and time of guard, Python and checks, compared with a bare Python.

    .venv/bin/python benchmarks/prolog.py [--runs 40] [--processes 100 3000] [--smallest] [-- CHECKER ARGUMENT...]

Run it as root. It renders a site as `site render` does, with the system's own interpreter, and runs the site's prolog
as slurmd does, for a job on this node with the default checks. A checker after `--` is measured, too. The table has
medians of rounds in a random order, and ratios to `/usr/bin/python3 -I -S -c pass`. Sleeping processes bring the
machine to the given numbers of processes. Exits 1 if the prolog takes more than 4.5 times the CPU of the bare Python
with up to 1,000 processes, or more than 9 times with more processes.
"""

import os
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.measure import Spent, arguments, judged, medians, process, rounds, show
from slurm_plugin.records import node_directory
from slurm_plugin.site.configuration import load
from slurm_plugin.site.files import render_site

PYTHON = "/usr/bin/python3"
BARE, OURS, OTHER = f"{PYTHON} -I -S -c pass", "our prolog", "the other checker"
LIMITS = {1000: 4.5, 10**9: 9.0}  # most processes -> most CPU, as a multiple of the bare Python
ENVIRON = {"SLURM_JOB_COMMENT": "[sp1;retries=1;ib=auto]", "SLURM_JOB_UID": "0", "SLURM_JOB_GID": "0"}


def processes() -> int:
    """Return how many processes this machine has."""
    return sum(path.name.isdigit() for path in Path("/proc").iterdir())


@contextmanager
def sleepers(wanted: int) -> Iterator[int]:
    """Start processes until the machine has `wanted` processes. Yields the number of processes."""
    here = processes()
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
    """Return the prolog of a site in this directory, with defaults except for the sizes of file systems."""
    site = directory / "site.yaml"
    site.write_text(f"run_directory: {directory}/run\nprechecks: {{disk-size: {{root: 1MB, shm: 1MB, cache: null}}}}\n")
    render_site(load(site), directory / "site", root=str(directory / "site"))
    return directory / "site/hooks/prolog"


def first(prolog: Path, job: dict[str, str]) -> Spent:
    """Return the cost of the prolog of a new job. Then remove the job's directory and its mount."""
    try:
        return process([str(prolog)], job)[0]
    finally:
        run_directory = str(prolog.parents[2] / "run")
        for directory in node_directory.all_runs(run_directory):
            node_directory.remove(run_directory, directory)


def ways(prolog: Path, checker: Sequence[str]) -> dict[str, Callable[[], Spent]]:
    """Return the programs to measure, the bare Python first."""
    node = socket.gethostname()
    job = {**ENVIRON, "SLURM_JOB_ID": "7", "SLURMD_NODENAME": node, "SLURM_JOB_NODELIST": node}
    found = {
        BARE: lambda: process([PYTHON, "-I", "-S", "-c", "pass"], {})[0],
        OURS: lambda: first(prolog, job),
    }
    if checker:
        path = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
        found[OTHER] = lambda: process(checker, path, check=False)[0]  # it may find this machine faulty
    return found


def main() -> int:
    """Measure, print and judge."""
    parser = arguments(__doc__)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--processes", type=int, nargs="+", default=[100, 3000])
    parser.add_argument("checker", nargs="*", help="after --: another checker, by its absolute path")
    options = parser.parse_args()
    if options.smallest:
        options.runs, options.processes = 1, [processes() + 5]
        options.checker = options.checker or ["/usr/bin/true"]
    missed = []
    with tempfile.TemporaryDirectory() as name:
        todo = ways(rendered(Path(name)), options.checker)
        for wanted in options.processes:
            with sleepers(wanted) as found:
                middle = medians(rounds(todo, options.runs))
            show(f"{found} processes, median of {options.runs}", middle)
            ratio = middle[OURS].cpu / middle[BARE].cpu
            limit = next(times for most, times in LIMITS.items() if found <= most)
            if ratio > limit:
                missed.append(f"{found} processes: {ratio:.2f} x the CPU of a bare Python, the limit is {limit}")
    return judged(missed, smallest=options.smallest)


if __name__ == "__main__":
    sys.exit(main())
