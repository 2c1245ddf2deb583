"""The guards of a job as the supervisor sees them: one step with a task on every node, and what its tasks say.

Everything goes through the step's own stdin and stdout, which Slurm has made and authenticated: no port of ours. The
step outlives the loss of a node (`--no-kill`) and overlaps with the program's. Protocol: `slurm_plugin.job.guard`.
"""

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from threading import Condition, Thread
from typing import IO

from hostfiles import nodelist
from slurm_plugin.errors import MissingError
from slurm_plugin.job import barrier, guard, lease
from slurm_plugin.job.wipe import SPARED
from slurm_plugin.slurm import steps

SLICE_S = 0.2  # how long we wait at most before we look whether we are told to end
COMPLAINT_BYTES = 4000
CLOSE_S = 2.0
MARGIN_S = 2.0
PIPE_BYTES = 1 << 20


class Guards:
    """A running step of guards on `hosts`. Every method is for the main thread; two threads read, one beats."""

    def __init__(
        self,
        command: Sequence[str],
        hosts: Sequence[str],
        environ: Mapping[str, str] | None = None,
        *,
        groups: Sequence[Sequence[str]] = (),
        lost_s: float = lease.LOST_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start the step. `lost_s`: how long a node may be silent. Raises MissingError where there is no srun.

        `groups`: the nodes of each group of a heterogeneous job. A step over several of them gives its stdin to the
        tasks of one: so each has a step of its own.
        """
        self.hosts, self._clock = tuple(hosts), clock
        self._me = os.environ.get("SLURMD_NODENAME", self.hosts[0])
        self._changed = Condition()
        self._parts: dict[tuple[int, str], dict[int, str]] = {}  # question, node -> part -> text
        self._whole: dict[int, dict[str, str]] = {}  # question -> node -> the whole answer
        self._gone: dict[int, dict[str, str]] = {}
        self._number = 0
        self.heard: dict[str, float] = {}
        self.drained: dict[str, str] = {}
        self.turn_lost = False
        self.isolated = False
        # Every guard has answered by then. By the nodes of the start: the guards know of no others.
        self._limit_s = lost_s + guard.period(len(hosts)) * guard.BEAT_S
        self._beating: Thread | None = None
        self._last_beat = clock()
        self._complaint = b""
        environ = {**steps.answering_environment(os.environ if environ is None else environ), **SPARED}
        parts = [[name for name in self.hosts if name in known] for known in map(set, groups or [self.hosts])]
        self._steps = [
            _started(steps.on_each_node(command, names, groups, survive=True), environ) for names in parts if names
        ]
        self._readers = [
            Thread(target=self._read, args=pair, daemon=True)
            for step in self._steps
            for pair in ((step.stdout, self._heard_line), (step.stderr, self._complained))
        ]
        for thread in self._readers:
            thread.start()

    # What the supervisor does

    def ask(self, text: str, deadline_s: float, give_up: Callable[[], bool]) -> tuple[dict[str, str], str]:
        """The whole answers of the nodes that gave one in time, and what srun has said since the last question."""
        self._number += 1
        number = self._number
        self._tell(f"ask {number} {text}")
        silent, whole = self.silent(), self._whole.setdefault(number, {})
        self._until(lambda: len(whole) == len(self.hosts) or {*whole, *silent} >= set(self.hosts), deadline_s, give_up)
        complaint, self._complaint = self._complaint, b""
        return dict(whole), complaint.decode(errors="replace").strip()

    def arm(self) -> None:
        """Begin to beat: from now on every node ends its ranks where it does not hear from us for `LEASE_S`."""
        if self._beating is None:
            self._last_beat = now = self._clock()
            self.heard = dict.fromkeys(self.hosts, now)
            self._beating = Thread(target=self._beat, daemon=True)
            self._beating.start()

    def wipe(self, deadline_s: float, give_up: Callable[[], bool] = lambda: False) -> dict[str, str]:
        """End every process that is left of the attempt; the nodes that said so, with how many were left there."""
        self._number += 1
        number = self._number
        self._tell(f"wipe {number}")
        silent, gone = set(self.silent()), self._gone.setdefault(number, {})
        self._until(lambda: {*gone, *silent} >= set(self.hosts), deadline_s, give_up)
        return dict(gone)

    def dump(self, seconds: float) -> None:
        """Let every node print where its Python processes stand, into the job's log."""
        self._tell("dump 0")
        time.sleep(seconds)

    def silent(self) -> tuple[str, ...]:
        """The nodes that have not answered for too long."""
        if self._beating is None:
            return ()
        if not self.isolated and self._clock() - self._last_beat > lease.LEASE_S / 2:
            return ()  # it was we who stood still: a job that is suspended, and resumed
        return tuple(name for name in self.hosts if self._clock() - self.heard.get(name, 0.0) > self._limit_s)

    @property
    def alive(self) -> bool:
        """Whether the step is there, of every group."""
        return all(step.poll() is None for step in self._steps)

    def release(self, names: Collection[str]) -> None:
        """Go on without the guards of these nodes, where nothing runs any more. That beside us stays, for the turn."""
        names = {*names} - {self._me}
        if gone := [name for name in self.hosts if name in names]:
            self._tell(f"bye {nodelist.fold(gone)}")
        self.hosts = tuple(name for name in self.hosts if name not in names)
        self.drained = {name: why for name, why in self.drained.items() if name not in names}

    def close(self, clean: Collection[str]) -> float:
        """End the guards; those on nodes not in `clean` end their ranks first, as their lease runs out.

        Returns when that has surely happened, on this object's clock: those that did not hear the word to end, or may
        not have, do so too. 0.0 where there is nothing to wait for: no lease was begun, or every guard has ended.
        """
        there = self.alive
        beating, self._beating = self._beating, None
        with self._changed:
            self._changed.notify_all()
        if beating:
            beating.join(guard.BEAT_S)
        names = [name for name in self.hosts if name in clean]
        if names:
            self._tell(f"bye {nodelist.fold(names)}")
        for step in self._steps:
            with suppress(OSError):
                if step.stdin:
                    step.stdin.close()
        end = self._clock() + (CLOSE_S if len(names) == len(self.hosts) else SLICE_S)
        ended = [_ends(step, end - self._clock()) for step in self._steps]
        if there and all(ended) and len(names) == len(self.hosts):
            return 0.0
        return self._last_beat + lease.LEASE_S + MARGIN_S if beating else 0.0

    # What the threads do

    def _tell(self, line: str) -> None:
        for step in self._steps:
            with suppress(OSError, ValueError):  # the step has ended: its silence tells
                if step.stdin:
                    step.stdin.write(line.encode() + b"\n")
                    step.stdin.flush()

    def _until(self, done: Callable[[], bool], deadline_s: float, give_up: Callable[[], bool]) -> None:
        end = self._clock() + deadline_s
        with self._changed:
            while not done() and not give_up() and (left := end - self._clock()) > 0:
                if not self.alive and not any(thread.is_alive() for thread in self._readers):
                    return
                self._changed.wait(min(left, SLICE_S))

    def _beat(self) -> None:
        number = 0
        while self._beating is not None:
            others = {*self.hosts} - {self._me}
            if others and others.issubset(self.silent()):
                self.isolated = True  # we are the one who is cut off: our own node's lease is to run out too
                return
            number, now = number + 1, self._clock()
            if now - self._last_beat > lease.LEASE_S / 2:
                self.heard = dict.fromkeys(self.hosts, now)
            self._last_beat = now
            self._tell(f"beat {number} {now:.3f}")
            with self._changed:
                self._changed.wait_for(lambda: self._beating is None, guard.BEAT_S)

    def _read(self, stream: IO[bytes], take: Callable[[bytes], None]) -> None:
        for line in stream:
            with self._changed:
                take(line)
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def _complained(self, line: bytes) -> None:
        self._complaint = (self._complaint + line)[-COMPLAINT_BYTES:]

    def _heard_line(self, raw: bytes) -> None:
        line = raw.decode(errors="replace").rstrip("\n")
        part = barrier.part(line)
        if part is not None:
            number, node, index, count, text = part
            parts = self._parts.setdefault((number, node), {})
            parts[index] = text
            if len(parts) == count:
                self._whole.setdefault(number, {})[node] = "".join(parts[each] for each in sorted(parts))
            self._hear(node)
        elif line.startswith(f"{guard.LINE} "):
            words = line.split(" ", 4)
            if len(words) >= 4 and words[3].isdigit():
                self._guard_said(words[1], words[2], int(words[3]), words[4] if len(words) > 4 else "")
        elif line.startswith("[slurm_plugin] "):
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()

    def _guard_said(self, node: str, word: str, number: int, text: str) -> None:
        self._hear(node)
        if word == "gone":
            self._gone.setdefault(number, {})[node] = text
        elif word == "turn":
            self.turn_lost = True
        elif word == "alive" and node in self.hosts:
            self.drained[node] = text

    def _hear(self, node: str) -> None:
        if node in self.hosts:
            self.heard[node] = self._clock()


def _started(argv: Sequence[str], environ: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    """A step that we talk with."""
    pipe = subprocess.PIPE
    try:
        step = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, env=environ, start_new_session=True)
    except FileNotFoundError as error:
        raise MissingError("srun was not found on the PATH of the batch script") from error
    if step.stdin:
        with suppress(OSError):  # a question of many hosts is not to wait for srun, which reads when all have begun
            fcntl.fcntl(step.stdin.fileno(), fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return step


def _ends(step: "subprocess.Popen[bytes]", seconds: float) -> bool:
    """Whether a step ends by itself in this time; else it is killed."""
    try:
        step.wait(max(0.0, seconds))
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(step.pid, 9)
        with suppress(subprocess.TimeoutExpired):
            step.wait(CLOSE_S)
        return False
    return True
