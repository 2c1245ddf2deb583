"""Measure what TaskProlog costs a task: its CPU and time, compared with an empty `#!/bin/sh` script.

    .venv/bin/python benchmarks/task_prolog.py [--runs 600] [--user 20001] [--smallest]

Each round starts every script once, in a random order, as the job's user. CPU is the process's user and system time.
The table has the medians of all rounds, and their ratios to the empty script. Exits 1 if TaskProlog takes more than 1.2
times the CPU or the time of the empty script, with any file except the last. The last file shows the cost of length: a
shell reads a script byte by byte, about 16 ns each in dash, and no builtin copies a file. A long variable that is the
same for all tasks belongs in srun's environment.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchmarks.measure import Spent, arguments, judged, medians, process, rounds, show
from hostfiles import Allocation, Host
from slurm_plugin.launch import MODES, Options, Place
from slurm_plugin.records import node_directory
from slurm_plugin.supervisor import prestart
from slurm_plugin.templates import render

LIMIT = 1.2  # times the empty script
EMPTY = "an empty sh"
TOO_LONG = "of 760 workers, 20 KiB"
WORKER = '"worker-0123.example:2222",'
LAUNCH = "7.0.0"
SLURMS = {"SLURM_NODEID": "3", "SLURM_PROCID": "29", "SLURM_LOCALID": "5", "PATH": "/usr/bin:/bin"}


def files() -> dict[str, str]:
    """Return the files that TaskProlog sources, by case, as the modes and the hooks write them."""
    allocation = Allocation((Host("n1", 8, 8), Host("n2", 8, 8)))
    launcher, rank = (MODES["pytorch"].task_script(Place(allocation, 61000, "/w", each)) for each in ("node", "task"))
    workers = Allocation(tuple(Host(f"worker-{number:04}.example") for number in range(64)))
    parameters = MODES["tensorflow"].task_script(Place(workers, 61000, "/w", options=Options(ps=4)))
    assert launcher
    assert rank
    assert parameters
    ten = {f"LIBRARY_{number}": f"/opt/library-{number}/lib:/usr/lib" for number in range(10)}
    hooks = prestart.task_lines(prestart.changes({}, ten))
    return {
        "launcher: 1 variable": launcher,
        f"rank: {rank.count('=')} variables": rank,
        "rank, and 10 of a hook": node_directory.with_hook_lines(rank, hooks),
        "TF_CONFIG of 64 tasks": parameters,
        TOO_LONG: prestart.task_lines(prestart.changes({}, {"TF_CONFIG": WORKER * 760})),
    }


def script(path: Path, environ: Mapping[str, str], lines: int) -> Callable[[], Spent]:
    """Return a call that runs this script, which must print `lines` lines."""

    def run() -> Spent:
        spent, said = process([str(path)], environ)
        assert said.count("\n") == lines, said
        return spent

    path.chmod(0o755)
    return run


def ways(directory: Path, user: int) -> dict[str, Callable[[], Spent]]:
    """Return the scripts to measure, the empty one first. Each other script has its own run directory."""
    empty = directory / "empty"
    empty.write_text("#!/bin/sh\n")
    found = {EMPTY: script(empty, SLURMS, 0)}
    for name, text in {"not our launch": "", **files()}.items():
        run_directory = directory / str(len(found))
        place = run_directory / "jobs" / LAUNCH / "user"
        place.mkdir(parents=True)
        (place / "task.sh").write_text(text)
        for path in (place, place / "task.sh"):
            os.chown(path, user, user)
        task_prolog = run_directory / "task_prolog"
        lines = node_directory.task_prolog(str(run_directory))
        task_prolog.write_text(render("site/task_prolog.sh.j2", version="0", task_prolog=lines))
        ours = {"SLURM_PLUGIN_LAUNCH": LAUNCH} if text else {}
        said = subprocess.run(["/bin/sh", "-c", text], env=SLURMS, capture_output=True, check=True).stdout
        found[name] = script(task_prolog, {**SLURMS, **ours}, said.count(b"\n") + 1 if text else 0)
    return found


@contextmanager
def as_user(user: int) -> Iterator[None]:
    """Become this user. The saved user id stays root, so that this process can become root again at the end."""
    if os.geteuid() != 0:
        yield
        return
    os.setgroups([])
    os.setresgid(user, user, 0)
    os.setresuid(user, user, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)
        os.setresgid(0, 0, 0)


def main() -> int:
    """Measure, print and judge."""
    parser = arguments(__doc__)
    parser.add_argument("--runs", type=int, default=600)
    parser.add_argument("--user", type=int, default=20001 if os.geteuid() == 0 else os.geteuid(), help="a user's id")
    options = parser.parse_args()
    runs = 1 if options.smallest else options.runs
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        todo = ways(Path(name), options.user)
        with as_user(options.user):
            middle = medians(rounds(todo, runs))
    show(f"median of {runs}", middle)
    missed = []
    for name, spent in middle.items():
        ratio = max(each / other for each, other in zip(spent, middle[EMPTY], strict=True))
        if ratio > LIMIT and name != TOO_LONG:
            missed.append(f"{name}: {ratio:.2f} x the empty script, the limit is {LIMIT}")
    return judged(missed, smallest=options.smallest)


if __name__ == "__main__":
    sys.exit(main())
