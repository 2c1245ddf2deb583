"""The recorder: a process beside the supervisor that writes `usage.jsonl` and `progress.jsonl` while a program runs.

It reads the program's log, and the samples of the guards from its stdin, as the lines of guard.sampler. If the job has
no guards, it starts the sampler of the first node itself. It is a process of its own: a log, a directory or a regular
expression may hang, and the supervisor must not. It ends when its stdin is closed.
"""

import json
import os
import resource
import select
import signal
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from hostfiles import nodelist
from prechecks import files
from prechecks.child import Child
from slurm_plugin.errors import printable
from slurm_plugin.logs import steps
from slurm_plugin.records import notify, progress_file, slow, usage
from slurm_plugin.supervisor import log
from slurm_plugin.supervisor.guard import processes, sampler
from slurm_plugin.supervisor.recording.orders import Orders
from slurm_plugin.supervisor.recording.slowness import Facts, Ratios, StepTimes

TAIL: Final = 1 << 16  # bytes at the end of a log that one read takes
LONGEST_LINE: Final = 1 << 13  # bytes of an unfinished line that are kept for the next read
SEARCH_S: Final = 5.0  # for the user's own expression in TAIL bytes


def main(given: str) -> int:
    """Record until stdin is closed."""
    for number in (*sampler.IGNORED, signal.SIGTERM):  # the supervisor ends this process by closing stdin
        signal.signal(number, signal.SIG_IGN)
    orders = Orders(**json.loads(given))
    if orders.apart:
        log.keep_apart(Path(orders.directory), fresh=False)
    try:
        Recorder(orders).serve()
    except Exception as error:  # noqa: BLE001 - a traceback in the job's log would look like the program's
        log.say(f"utilisation and progress are no longer recorded: {type(error).__name__}: {printable(str(error))}")
        return 1
    return 0


class Recorder:
    """Records one attempt."""

    def __init__(self, orders: Orders, logs: tuple[int, ...] = (1, 2)) -> None:
        self.orders = orders
        self._usage = Path(orders.directory, usage.FILE)
        names = nodelist.expand(orders.nodes)
        self._workers = {name: place for place, name in enumerate(names)}
        offsets = zip(logs, orders.offsets, strict=False)
        self._logs = {(found.st_dev, found.st_ino): Tail(fd, at) for fd, at in offsets if (found := _file(fd))}
        self._steps = steps.Steps()
        self._own = orders.progress
        self._points: list[progress_file.Point] = []  # the newest one
        self._warned = usage.low(usage.recent(self._usage)) is not None
        self._mean = usage.Mean()
        self._rest: dict[int, bytes] = {}
        self._fresh: list[usage.Sample] = []
        self._slow = Path(orders.directory, slow.FILE)
        self._ratios, self._times, self._facts = Ratios(orders.threshold), StepTimes(), Facts({}, {})
        self._threshold, self._has_ratios = orders.threshold, False
        self._notices = slow.read(self._slow)

    def serve(self, stdin: int = 0) -> None:
        """Take samples and read the log, until stdin is closed."""
        sources, pid = [stdin], 0
        if self.orders.request:
            read, write = os.pipe()
            above = os.getppid()
            keep = (above, processes.parent(above))
            orders = self.orders
            pid = sampler.start(orders.request, orders.node, orders.job_id, orders.directory, keep, out=write)
            os.close(write)
            sources.append(read)
        pace = sampler.Pace(progress_file.EVERY_S, time.monotonic())
        until = time.monotonic() + 1
        try:
            while stdin in sources:
                for source in select.select(sources, (), (), max(0.0, until - time.monotonic()))[0]:
                    if not self.take(source):
                        sources.remove(source)
                if time.monotonic() >= until:
                    self.look()
                    until = pace.next(time.monotonic())
        finally:
            sampler.stop(pid)
        self.look(last=True)

    def take(self, source: int) -> bool:
        """Take the lines of samples that have come. Return False at their end."""
        piece = os.read(source, TAIL)
        *lines, rest = (self._rest.get(source, b"") + piece).split(b"\n")
        self._rest[source] = rest[-TAIL:]
        for line in lines:
            sample = sampler.parsed(line.decode(errors="replace"), self.orders.attempt, self._workers)
            if sample:
                self._fresh.append(self._mean.added(sample))
                self._facts.take(sample)
        return bool(piece)

    def look(self, *, last: bool = False) -> None:
        """Write the samples that have come, and how far the program is. `last`: the program has ended."""
        fresh, self._fresh = self._fresh, []
        with suppress(OSError):
            usage.write(self._usage, fresh, len(self._workers))
        self._warn(fresh)
        texts = [each.read(last=last) for each in self._logs.values()]
        if [each for each in texts if each and self._search(each)]:
            self._write_point()
        self._judge([each for each in texts if each])

    def _search(self, text: str) -> bool:
        if not self.orders.progress:
            return self._steps.read(text)
        if not self._own:
            return False
        found = _searched("progress", steps.own, self._own, text)
        self._own = "" if found is None else self._own
        return self._steps.take([steps.Step(*each) for each in found or ()])

    def _judge(self, texts: list[str]) -> None:
        """Judge the hardware times, if they have a threshold and the program prints them, else its steps."""
        fresh, self._steps.fresh = self._steps.fresh, []
        wrong, kind = "", slow.RATIO
        for text in texts if self._threshold else ():
            ratios = self._ratios_in(text)
            self._has_ratios = self._has_ratios or bool(ratios)
            wrong = self._ratios.added(ratios) or wrong
        if not self._has_ratios:
            wrong, kind = self._times.added(fresh, time.monotonic()), slow.STEPS
        now = time.time()
        if wrong and slow.due(self._notices, kind, self.orders.attempt, now):
            self._notice(slow.Notice(round(now, 3), self.orders.attempt, kind, wrong, tuple(self._facts.suspects())))

    def _ratios_in(self, text: str) -> list[float]:
        if not self.orders.pattern:
            return steps.ratios("", text)
        found = _searched("performance", steps.ratios, self.orders.pattern, text)
        self._threshold = 0.0 if found is None else self._threshold
        return found or []

    def _notice(self, notice: slow.Notice) -> None:
        """Write a notice into the log and the job's records. Alert, or let the supervisor do so."""
        self._notices.append(notice)
        log.say(notice.words)
        with suppress(OSError):
            slow.write(self._slow, notice)
        if notice.kind == slow.STEPS:
            return
        if self.orders.slow < 0:
            notify.of_job(self.orders.notify, slow.EVENT, self.orders.job_id, notice.words)
            return
        with suppress(OSError):
            os.write(self.orders.slow, notice.words.encode()[: slow.MOST_BYTES])

    def _write_point(self) -> None:
        found, now = self._steps.last, round(time.time(), 3)
        if found is None or found.step is None:
            return
        step_s = found.step_s
        before = self._points[-1] if self._points else None
        if step_s is None and before and found.step > before.step and now > before.t:
            step_s = round((now - before.t) / (found.step - before.step), 6)
        first = self._steps.first.step if self._steps.first and not before else None
        point = progress_file.Point(now, self.orders.attempt, found.step, found.of, step_s, first)
        self._points = [point]
        with suppress(OSError):
            progress_file.write(Path(self.orders.directory, progress_file.FILE), [point])

    def _warn(self, fresh: list[usage.Sample]) -> None:
        """Write the warning about accelerators into the log, once for a job."""
        if self._warned or not (low := usage.low(fresh)):
            return
        self._warned = True
        log.say(f"{low.text}; what usually helps: {'; '.join(usage.HELPS)}")


class Tail:
    """Reads what is appended to an open log, from `offset` on."""

    def __init__(self, fd: int, offset: int) -> None:
        self._fd, self._offset = fd, offset

    def read(self, *, last: bool = False) -> str:
        """Return the whole lines since the last call, of TAIL bytes at most. `last`: also the line that has not ended.

        A carriage return also ends a line.
        """
        try:
            with files.Opened(os.open(f"/proc/self/fd/{self._fd}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)) as fd:
                size = os.fstat(fd).st_size
                if size < self._offset:  # truncated
                    self._offset = 0
                start = max(self._offset, size - TAIL)
                piece = os.pread(fd, size - start, start)
        except OSError:
            return ""
        if start > self._offset:  # leave out the line that is cut off
            piece = piece[_first_end(piece) :]
        end = len(piece) if last else max(piece.rfind(b"\n"), piece.rfind(b"\r")) + 1
        if not end and len(piece) > LONGEST_LINE:
            end = len(piece)
        self._offset = size - len(piece) + end
        return piece[:end].decode(errors="replace")


def _searched(key: str, find: Callable[[str, str], list[Any]], expression: str, text: str) -> list[Any] | None:
    """Search with a user's own expression in a child process; return None, and say so, if that takes too long.

    The kernel ends the child after its time, also if the recorder has ended.
    """

    def work(_say: object) -> bytes:
        resource.setrlimit(resource.RLIMIT_CPU, (int(SEARCH_S) + 1, int(SEARCH_S) + 1))
        return json.dumps(find(expression, text)).encode()

    child = Child(work)
    if child.collect(child.start + SEARCH_S) and not child.status:
        return list(json.loads(child.output))
    log.say(f"`{key}` is switched off: it took more than {SEARCH_S:g} s; write a simpler expression")
    return None


def _first_end(piece: bytes) -> int:
    ends = [place + 1 for place in (piece.find(b"\n"), piece.find(b"\r")) if place >= 0]
    return min(ends, default=len(piece))


def _file(fd: int) -> os.stat_result | None:
    """Return the status of an open regular file; None for anything else."""
    with suppress(OSError):
        if stat.S_ISREG((found := os.fstat(fd)).st_mode):
            return found
    return None
