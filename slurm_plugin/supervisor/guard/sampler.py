"""Measure a job's use of this node, in a process of its own: a driver that hangs blocks neither guard nor supervisor.

psutil measures processor time, memory and I/O of the job's processes, if the node's Python has it. The deployed code
runs without site-packages, so this process looks for psutil there by itself. A sample goes to the first node as one
line, `slurm_plugin-guard NODE usage SECONDS VALUES`. VALUES is JSON: cpu, memory, read, write, for each accelerator
the fields of `prechecks.utilisation.Device`, and the errors of links if they are known. srun keeps such a line
whole only up to 1024 bytes.
"""

import json
import os
import select
import signal
import site
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from hostfiles import HostfileError, npu
from prechecks import utilisation
from slurm_plugin.records import usage
from slurm_plugin.supervisor.guard import processes

FIRST_S: Final = 5.0  # until the first sample
SHARE: Final = 0.001  # of one core: the most that measuring takes. A slow tool is called less often.
MOST_BYTES: Final = 900
PARENT_S: Final = 5.0  # how often to see whether the parent is alive
ALWAYS: Final = 5  # fields of an accelerator in each line, without clock and throttle
LINE: Final = "slurm_plugin-guard"
WORD: Final = "usage"
# Slurm sends these signals to the whole step.
IGNORED: Final = (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


class Request(NamedTuple):
    """What to measure. The supervisor sends it to each guard as JSON."""

    tools: Mapping[str, Mapping[str, Any]]  # settings of the checks that have a tool, see `utilisation.measure`
    cpus: Mapping[str, int]  # the job's CPUs on each node
    every_s: float = usage.EVERY_S
    cards: int = 0  # accelerators that the job has on each node, if more than 1: for those that Slurm does not number
    gpus: Mapping[str, Sequence[int]] = {}  # the numbers on each node, if the guards' step has none


Values = tuple[float | None, int | None, int | None, int | None]  # cpu, memory, read, write


class Pace:
    """When to work next: every `every_s` seconds, or less often if the work takes more than SHARE of a core."""

    def __init__(self, every_s: float, now: float, spent: Callable[[], float] = lambda: sum(os.times()[:4])) -> None:
        self._every_s, self._spent = every_s, spent
        self._began, self._before = now, spent()

    def next(self, now: float) -> float:
        """Return the time of the next work after work that ends at `now`."""
        return max(now + self._every_s, self._began + (self._spent() - self._before) / SHARE)


class Processes:
    """Processor time, memory and I/O of processes, by psutil."""

    def __init__(self, psutil: Any, cpus: int) -> None:
        self._psutil, self._cpus = psutil, max(1, cpus)
        # (pid, start) -> CPU seconds, bytes read and written
        self._known: dict[tuple[int, float], tuple[float, int, int]] = {}
        self._at = time.monotonic()

    def sample(self, pids: Collection[int]) -> Values:
        """Return the used part of the CPUs since the last call, bytes of memory, bytes a second read and written."""
        if self._psutil is None:
            return None, None, None, None
        known, memory = {}, 0
        for pid in pids:
            with suppress(self._psutil.Error, OSError):
                process = self._psutil.Process(pid)
                with process.oneshot():
                    times, size = process.cpu_times(), process.memory_info().rss
                    moved = process.io_counters() if hasattr(process, "io_counters") else None
                    known[pid, process.create_time()] = (
                        times.user + times.system,
                        moved.read_bytes if moved else 0,
                        moved.write_bytes if moved else 0,
                    )
                    memory += size
        seconds, self._at = time.monotonic() - self._at, time.monotonic()
        before, self._known = self._known, known
        used, read, written = (
            sum(max(0, values[place] - before.get(key, (0, 0, 0))[place]) for key, values in known.items()) / seconds
            for place in range(3)
        )
        return round(used / self._cpus, 3), memory, int(read), int(written)


def start(request: str, node: str, job_id: int, directory: str, keep: Collection[int], *, out: int = 1) -> int:
    """Start the process for this node, and return its pid. It ends with its parent. `out`: where its lines go."""
    parent = os.getpid()
    if pid := os.fork():
        return pid
    code = 1
    try:
        os.setpgid(0, 0)  # `stop` also ends a tool that hangs
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for number in IGNORED:
            signal.signal(number, signal.SIG_IGN)
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        parsed = Request(**json.loads(request))
        measured = Processes(_psutil(), parsed.cpus.get(node, 0))
        _sample(parent, parsed, lambda: measured.sample(tuple(processes.of_job(job_id, directory, keep))), node, out)
        code = 0
    finally:
        os._exit(code)


def stop(pid: int) -> None:
    """End the process that `start` has started, and the tool that it may be running. 0: there is none."""
    with suppress(ProcessLookupError, PermissionError):
        if pid:
            os.kill(pid, signal.SIGKILL)
            os.killpg(pid, signal.SIGKILL)


def _sample(parent: int, request: Request, measured: Callable[[], Values], node: str, out: int) -> None:
    """Write a line for each sample until `parent` has ended."""
    own = own_accelerators(os.environ) or tuple(request.gpus.get(node, ())) or None
    pace: Pace | None = None
    measured()
    until = time.monotonic() + min(FIRST_S, request.every_s)
    while os.getppid() == parent:
        if (left_s := until - time.monotonic()) > 0:
            time.sleep(min(left_s, PARENT_S))
            continue
        values = measured()
        cards = utilisation.measure(request.tools, own, request.cards) if own or request.cards else []
        _write(out, line(node, time.time(), values, cards, utilisation.link_errors()))
        pace = pace or Pace(request.every_s, time.monotonic())  # the first sample also starts the driver's library
        until = pace.next(time.monotonic())


def own_accelerators(environ: Mapping[str, str]) -> tuple[int, ...] | None:
    """Return the numbers of the job's accelerators on this node; None if Slurm does not tell them."""
    try:
        return npu.device_ids(environ)
    except HostfileError:
        return None


def line(node: str, at: float, values: Values, cards: list[utilisation.Device], links: int | None = None) -> str:
    """Return the line of a sample, without accelerators that do not fit into it."""
    shown = [[None if each is None else round(each, 3) for each in card] for card in cards]
    shown = [card if card[ALWAYS:] != [None, None] else card[:ALWAYS] for card in shown]
    last = () if links is None else (links,)
    while True:
        text = f"{LINE} {node} {WORD} {at:.0f} {json.dumps([*values, shown, *last], separators=(',', ':'))}"
        if len(text) <= MOST_BYTES or not shown:
            return text
        shown.pop()


def parsed(text: str, attempt: int, workers: Mapping[str, int]) -> usage.Sample | None:
    """Return the sample of a line; None for another line, and for a node that is not among the attempt's `workers`."""
    words = text.split(" ", 4)
    if len(words) < 5 or words[0] != LINE or words[2] != WORD or words[1] not in workers:
        return None
    try:
        cpu, memory, read, write, cards, *links = json.loads(words[4])
        found = {"t": int(words[3]), "attempt": attempt, "node": words[1], "worker": workers[words[1]]}
        found |= {"cpu": cpu, "memory": memory, "read": read, "write": write, "links": links[0] if links else None}
        wanted = (utilisation.Device._fields[: max(ALWAYS, len(card))] for card in cards)
        found["accelerators"] = [dict(zip(names, card, strict=True)) for names, card in zip(wanted, cards, strict=True)]
        return usage.sample(found)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None


def _psutil() -> Any:
    """Return the module psutil; None if this Python does not have it."""
    prefixes = [sys.prefix, sys.base_prefix]  # the second one has the packages of the system, if this is a venv
    sys.path += [path for path in site.getsitepackages(prefixes) if path not in sys.path]
    try:
        import psutil  # noqa: PLC0415 - 25 ms, and only this process needs it
    except ImportError:
        return None
    return psutil


def _write(out: int, text: str) -> None:
    """Write a line in one piece, unless its reader has stopped."""
    with suppress(OSError, ValueError):
        if select.select((), (out,), (), 0)[1]:
            os.write(out, text.encode("ascii", "replace") + b"\n")
