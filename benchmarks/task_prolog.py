"""What TaskProlog costs a task: CPU and time of ours beside those of an empty `#!/bin/sh`, in one run.

    .venv/bin/python benchmarks/task_prolog.py [--runs 600] [--user 20001]

Each round starts every script once, in an order of its own, as the job's user, stdout into a pipe, with posix_spawn and
wait4: CPU is user and system of that one process, from the start to its end. Medians of all rounds, and their multiples
of the empty script's. Exits 1 where TaskProlog costs more than 1.2 times the CPU or the time of the empty script, with
any file but the last. That one is there to show the price of length: a shell reads a script byte by byte, about 16 ns
each in dash, and no builtin copies a file; what is long and the same for all tasks belongs into srun's environment.
"""

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

LIMIT = 1.2
EMPTY = "an empty sh"
TOO_LONG = "of 760 workers, 20 KiB"
WORKER = '"worker-0123.example:2222",'
LAUNCH = "7.0.0"
SLURMS = {"SLURM_NODEID": "3", "SLURM_PROCID": "29", "SLURM_LOCALID": "5", "PATH": "/usr/bin:/bin"}


def files() -> dict[str, str]:
    """What TaskProlog sources, by case: as the modes and the hooks write it."""
    from hostfiles import Allocation, Host  # noqa: PLC0415 - found by the path that main sets
    from slurm_plugin.job import changes, taskfile  # noqa: PLC0415
    from slurm_plugin.modes import MODES, Options, Place  # noqa: PLC0415

    allocation = Allocation((Host("n1", 8, 8), Host("n2", 8, 8)))
    launcher, rank = (MODES["pytorch"].task_script(Place(allocation, 61000, "/w", each)) for each in ("node", "task"))
    workers = Allocation(tuple(Host(f"worker-{number:04}.example") for number in range(64)))
    parameters = MODES["tensorflow"].task_script(Place(workers, 61000, "/w", options=Options(ps=4)))
    assert launcher
    assert rank
    assert parameters
    ten = {f"LIBRARY_{number}": f"/opt/library-{number}/lib:/usr/lib" for number in range(10)}
    hooks = changes.task_lines(changes.changes({}, ten))
    return {
        "launcher: 1 variable": launcher,
        f"rank: {rank.count('=')} variables": rank,
        "rank, and 10 of a hook": taskfile.with_hooks(rank, hooks),
        "TF_CONFIG of 64 tasks": parameters,
        TOO_LONG: changes.task_lines(changes.changes({}, {"TF_CONFIG": WORKER * 760})),
    }


def once(argv: list[str], environ: Mapping[str, str], expect: int) -> tuple[float, float]:
    """CPU and wall seconds of one run; what it prints is read to its end."""
    reader, writer = os.pipe()
    start = time.perf_counter()
    pid = os.posix_spawn(argv[0], argv, environ, file_actions=[(os.POSIX_SPAWN_DUP2, writer, 1)])
    os.close(writer)
    said = 0
    while piece := os.read(reader, 1 << 16):
        said += piece.count(b"\n")
    _, status, usage = os.wait4(pid, 0)
    wall = time.perf_counter() - start
    os.close(reader)
    assert (status, said) == (0, expect), (argv, status, said)
    return usage.ru_utime + usage.ru_stime, wall


def cases(directory: Path, user: int) -> dict[str, tuple[list[str], dict[str, str], int]]:
    """What is run: its argv, environment and how many lines it prints. Each has a site and a directory of its own."""
    from slurm_plugin.templates import render  # noqa: PLC0415

    empty = directory / "empty"
    empty.write_text("#!/bin/sh\n")
    empty.chmod(0o755)
    found: dict[str, tuple[list[str], dict[str, str], int]] = {EMPTY: ([str(empty)], dict(SLURMS), 0)}
    for name, text in {"not our launch": "", **files()}.items():
        run_directory = directory / str(len(found))
        script = run_directory / "task_prolog"
        place = run_directory / "jobs" / LAUNCH / "user"
        place.mkdir(parents=True)
        (place / "task.sh").write_text(text)
        for path in (place, place / "task.sh"):
            os.chown(path, user, user)
        script.write_text(render("site/task_prolog.sh.j2", version="0", run_directory=str(run_directory)))
        script.chmod(0o755)
        ours = {"SLURM_PLUGIN_LAUNCH": LAUNCH} if text else {}
        said = subprocess.run(["/bin/sh", "-c", text], env=SLURMS, capture_output=True, check=True, timeout=10).stdout
        lines = said.count(b"\n") + 1 if text else 0
        found[name] = ([str(script)], {**SLURMS, **ours}, lines)
    return found


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=600)
    parser.add_argument("--user", type=int, default=20001 if os.geteuid() == 0 else os.geteuid(), help="a user's id")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        todo = cases(Path(name), options.user)
        if os.geteuid() == 0:  # what removes the directory is root's own, in the parent
            pid = os.fork()
            if pid:
                _, status = os.waitpid(pid, 0)
                return os.waitstatus_to_exitcode(status)
            os.setgroups([])
            os.setgid(options.user)
            os.setuid(options.user)
            os._exit(measure(todo, options.runs))
        return measure(todo, options.runs)


def measure(todo: Mapping[str, tuple[list[str], dict[str, str], int]], runs: int) -> int:
    """Rounds of all cases, each in an order of its own; the table."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in todo}
    order = list(todo)
    for number in range(runs + 10):
        random.shuffle(order)
        for name in order:
            spent = once(*todo[name])
            if number >= 10:  # caches are warm
                times[name].append(spent)
    middle = {
        name: tuple(statistics.median(column) for column in zip(*spent, strict=True)) for name, spent in times.items()
    }
    print(f"{'median of ' + str(runs):28}{'CPU ms':>8}{'x':>7}{'wall ms':>10}{'x':>7}")
    slow = False
    for name, spent in middle.items():
        cpu, wall = (one / other for one, other in zip(spent, middle[EMPTY], strict=True))
        print(f"{name:28}{spent[0] * 1e3:8.3f}{cpu:7.2f}{spent[1] * 1e3:10.3f}{wall:7.2f}")
        slow |= max(cpu, wall) > LIMIT and name != TOO_LONG
    sys.stdout.flush()
    return int(slow)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    sys.exit(main())
