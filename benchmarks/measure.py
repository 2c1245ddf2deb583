"""Functions that the benchmarks share: the CPU and time of a process, rounds, tables of medians, and limits.

Standard library only, because interpreters without other packages import it, too.
"""

import argparse
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

T = TypeVar("T")
WARM_UP = 3  # rounds that fill caches


class Spent(NamedTuple):
    """CPU seconds of a process and of the children that it waited for, and its wall time in seconds."""

    cpu: float
    wall: float


def arguments(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the option that every benchmark has."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    text = "run everything once at its smallest size and judge no limit; exit 1 only where something goes wrong"
    parser.add_argument("--smallest", action="store_true", help=text)
    return parser


def judged(missed: Sequence[str], *, smallest: bool) -> int:
    """Print the missed limits on stderr, and return the exit code. With `smallest`, ignore the limits."""
    if smallest:
        return 0
    for each in missed:
        print(f"limit missed: {each}", file=sys.stderr)
    return int(bool(missed))


def best(work: Callable[[], object], runs: int) -> float:
    """Return the fewest CPU seconds of this process that a call took."""
    times = []
    for _ in range(runs):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def process(
    argv: Sequence[str], environ: Mapping[str, str], stdin: str = os.devnull, *, check: bool = True
) -> tuple[Spent, str]:
    """Run the program at the path `argv[0]`. Return its CPU and time, and its output including stderr.

    Raises RuntimeError if it fails and `check` is set.
    """
    reader, writer = os.pipe()
    files = [(os.POSIX_SPAWN_OPEN, 0, stdin, os.O_RDONLY, 0), *((os.POSIX_SPAWN_DUP2, writer, fd) for fd in (1, 2))]
    start = time.perf_counter()
    pid = os.posix_spawn(argv[0], [*argv], environ, file_actions=files)
    os.close(writer)
    pieces = []
    while piece := os.read(reader, 1 << 16):
        pieces.append(piece)
    _, status, usage = os.wait4(pid, 0)
    wall = time.perf_counter() - start
    os.close(reader)
    said = b"".join(pieces).decode(errors="replace")
    if check and status:
        raise RuntimeError(f"{' '.join(argv)}: exit {os.waitstatus_to_exitcode(status)}\n{said}")
    return Spent(usage.ru_utime + usage.ru_stime, wall), said


def rounds(ways: Mapping[str, Callable[[], T]], runs: int) -> dict[str, list[T]]:
    """Call all ways in every round, in a random order. Drop the results of the first rounds, which fill caches."""
    found: dict[str, list[T]] = {name: [] for name in ways}
    warm_up = min(runs, WARM_UP)
    for number in range(warm_up + runs):
        for name in random.sample(list(ways), len(ways)):
            spent = ways[name]()
            if number >= warm_up:
                found[name].append(spent)
    return found


def medians(found: Mapping[str, Sequence[Spent]]) -> dict[str, Spent]:
    """Return the median CPU and the median time of each way."""
    return {name: Spent(*map(statistics.median, zip(*spent, strict=True))) for name, spent in found.items()}


def show(title: str, middle: Mapping[str, Spent]) -> None:
    """Print the medians, and their ratios and differences to the first way."""
    base = next(iter(middle.values()))
    print(f"{title:34}{'CPU ms':>9}{'x':>7}{'adds':>10}{'wall ms':>10}{'x':>7}{'adds':>10}")
    for name, spent in middle.items():
        print(f"{name:34}{_columns(spent.cpu, base.cpu, 9)}{_columns(spent.wall, base.wall, 10)}")


def _columns(seconds: float, base: float, width: int) -> str:
    return f"{seconds * 1e3:{width}.2f}{seconds / base:7.2f}{(seconds - base) * 1e3:10.2f}"
