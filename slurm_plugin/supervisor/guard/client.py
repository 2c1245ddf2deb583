"""The supervisor's side of the guards: a step with one task on every node.

Questions and answers go through the step's stdin and stdout. Slurm authenticates these, so the guards need no port. The
step survives the loss of a node (`--no-kill`) and overlaps with the program's step.
`slurm_plugin.supervisor.guard.server` describes the protocol.
"""

import fcntl
import os
import subprocess
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from threading import Condition, Thread
from typing import IO

from hostfiles import nodelist
from slurm_plugin.errors import MissingError
from slurm_plugin.records import site_settings
from slurm_plugin.slurm import steps
from slurm_plugin.supervisor.guard import barrier, sampler, server
from slurm_plugin.supervisor.guard.processes import SPARED
from slurm_plugin.supervisor.log import write

SLICE_S = 0.2  # interval between two calls of `give_up`
COMPLAINT_BYTES = 4000
CLOSE_S = 2.0
MARGIN_S = 2.0
PIPE_BYTES = 1 << 20


class Guards:
    """The guards on `hosts`: a running step, or one for each group of a heterogeneous job.

    Call the methods in the main thread only. Two threads read the output of each step, and one thread sends beats.
    """

    def __init__(
        self,
        command: Sequence[str],
        hosts: Sequence[str],
        environ: Mapping[str, str] | None = None,
        *,
        groups: Sequence[Sequence[str]] = (),
        devices: bool = False,
        slurm_bin: str = "",
        lost_s: float = site_settings.LOST_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start the steps. `lost_s`: seconds that a node may be silent. Raise MissingError if there is no srun.

        `groups`: the nodes of each group of a heterogeneous job. Each group needs its own step: a step over several
        groups gives its stdin to the tasks of one group only. `devices`: whether the guards check the job's devices.
        `slurm_bin`: the directory of Slurm's commands.
        """
        self.hosts, self._clock = tuple(hosts), clock
        self._me = os.environ.get("SLURMD_NODENAME", self.hosts[0])
        self._changed = Condition()
        self._parts: dict[tuple[int, str], dict[int, str]] = {}  # (question, node) -> part -> text
        self._whole: dict[int, dict[str, str]] = {}  # question -> node -> the whole answer
        self._gone: dict[int, dict[str, str]] = {}
        self._number = 0
        self.heard: dict[str, float] = {}
        self.answered = False  # whether a guard has ever answered. If not, Slurm has refused or not started the step
        self.drained: dict[str, str] = {}
        self.turn_lost = False
        self.isolated = False
        # Within this time every live guard answers. As in the guards, it depends on the number of nodes at the start.
        self._limit_s = lost_s + site_settings.beat_period(len(hosts)) * site_settings.BEAT_S
        self._late_s = self._limit_s - lost_s / 2
        self._beating: Thread | None = None
        self._last_beat = clock()
        self._renewed: dict[str, float] = {}  # node -> time of the last beat that renewed its lease
        self._left: set[str] = set()  # nodes whose guards have confirmed their `bye`
        self._complaint = b""
        self._take_sample: Callable[[str], None] | None = None
        environ = {**steps.answering_environment(os.environ if environ is None else environ), **SPARED}
        parts = [[name for name in self.hosts if name in known] for known in map(set, groups or [self.hosts])]
        self._steps = [
            _started(
                steps.on_each_node(command, names, groups, survive=True, devices=devices, directory=slurm_bin), environ
            )
            for names in parts
            if names
        ]
        self._readers = [
            Thread(target=self._read, args=pair, daemon=True)
            for step in self._steps
            for pair in ((step.stdout, self._read_line), (step.stderr, self._read_error))
        ]
        self._read_from = len(self._readers)  # streams that have not ended
        for thread in self._readers:
            thread.start()

    # Methods for the supervisor

    def ask(self, text: str, deadline_s: float, give_up: Callable[[], bool]) -> tuple[dict[str, str], str]:
        """Ask all nodes. Return the complete answers that came in time, and srun's errors since the last question."""
        self._number += 1
        number = self._number
        self._tell(f"ask {number} {text}")
        silent, whole = self.silent(), self._whole.setdefault(number, {})
        self._until(lambda: {*whole, *silent} >= set(self.hosts), deadline_s, give_up)
        with self._changed:  # a job may ask hundreds of nodes a hundred times
            self._parts.clear()
            self._whole.clear()
            complaint, self._complaint = self._complaint, b""
        return whole, complaint.decode(errors="replace").strip()

    def arm(self) -> None:
        """Begin to send beats. From now on a guard stops its ranks after `LEASE_S` without a beat."""
        if self._beating is None:
            self._last_beat = now = self._clock()
            self.heard = dict.fromkeys(self.hosts, now)
            self._beating = Thread(target=self._beat, daemon=True)
            self._beating.start()

    def wipe(self, deadline_s: float, give_up: Callable[[], bool] = lambda: False) -> dict[str, str]:
        """End every process of the attempt. Return the number of remaining processes on each node that answered."""
        self._number += 1
        number = self._number
        self._tell(f"wipe {number}")
        silent, gone = set(self.silent()), self._gone.setdefault(number, {})
        self._until(lambda: {*gone, *silent} >= set(self.hosts), deadline_s, give_up)
        return dict(gone)

    def sweep(self, names: Sequence[str]) -> None:
        """Make the guards of these nodes remove at their end the directory that the job's user made in /tmp."""
        self._tell(f"sweep {nodelist.fold(names)}")

    def save(self, number: int) -> None:
        """Make every guard send signal `number` to those processes of the program that expect it."""
        self._tell(f"save {number}")

    def sample(self, request: str, take: Callable[[str], None] | None) -> None:
        """Make every guard measure its node from now on, and pass each line of a sample to `take`, in a thread.

        `request`: see guard.sampler. A guard that measures already ignores it. `take` None: drop the samples.
        """
        with self._changed:
            self._take_sample = take
        if request:
            self._tell(f"{sampler.WORD} {request}")

    def dump(self, seconds: float) -> None:
        """Make every guard print the stacks of its Python processes into the job's log. Wait `seconds`."""
        self._tell("dump 0")
        time.sleep(seconds)

    def silent(self) -> tuple[str, ...]:
        """Return the nodes that have been silent for longer than the limit."""
        if self._beating is None:
            return ()
        if not self.isolated and self._clock() - self._last_beat > site_settings.LEASE_S / 2:
            return ()  # this process did not run: the job was suspended and resumed
        return tuple(name for name in self.hosts if self._clock() - self.heard.get(name, 0.0) > self._limit_s)

    @property
    def alive(self) -> bool:
        """Whether the step of every group is running."""
        return all(step.poll() is None for step in self._steps)

    def release(self, names: Collection[str]) -> None:
        """End the guards of these nodes, which run no ranks any more. Keep this node's guard: it detects later runs."""
        names = {*names} - {self._me}
        if gone := [name for name in self.hosts if name in names]:
            self._tell(f"bye {nodelist.fold(gone)}")
        self.hosts = tuple(name for name in self.hosts if name not in names)
        self.drained = {name: why for name, why in self.drained.items() if name not in names}

    def close(self, clean: Collection[str]) -> float:
        """End the guards. Guards on nodes not in `clean` first end their ranks, when their lease runs out.

        Return the time, on this object's clock, at which all these ranks have ended. A guard that may have missed its
        `bye` ends its ranks too. Return 0.0 if there are no leases, or if every guard has ended.
        """
        alive = self.alive
        beating, self._beating = self._beating, None
        with self._changed:
            self._changed.notify_all()
        if beating:
            beating.join(site_settings.BEAT_S)
        names = [name for name in self.hosts if name in clean]
        if names:
            self._tell(f"bye {nodelist.fold(names)}")
        for step in self._steps:
            with suppress(OSError):
                if step.stdin:
                    step.stdin.close()
        if beating and alive:  # else no guard confirms its `bye`
            with self._changed:
                self._changed.wait_for(lambda: self._left.issuperset(names) or not self._read_from, CLOSE_S)
        whole = len(names) == len(self.hosts)
        ended = [_wait_or_kill(step, CLOSE_S if whole else SLICE_S) for step in self._steps]
        unsure = [name for name in self.hosts if name not in names or name not in self._left]
        if not (beating and unsure) or (alive and whole and all(ended)):
            return 0.0
        return max(self._renewed.get(name, self._last_beat) for name in unsure) + site_settings.LEASE_S + MARGIN_S

    # Helpers, and methods of the threads

    def _tell(self, line: str) -> None:
        for step in self._steps:
            with suppress(OSError, ValueError):  # the step has ended: its nodes become silent
                if step.stdin:
                    step.stdin.write(line.encode() + b"\n")
                    step.stdin.flush()

    def _until(self, done: Callable[[], bool], deadline_s: float, give_up: Callable[[], bool]) -> None:
        end = self._clock() + deadline_s
        with self._changed:
            while not done() and not give_up() and (left := end - self._clock()) > 0:
                if not self.alive and not self._read_from:
                    return
                self._changed.wait(min(left, SLICE_S))

    def _beat(self) -> None:
        number = 0
        while self._beating is not None:
            others = {*self.hosts} - {self._me}
            if others and self.answered and others.issubset(self.silent()):
                self.isolated = True  # this node is cut off: its own lease must run out too
                return
            number, now = number + 1, self._clock()
            if now - self._last_beat > site_settings.LEASE_S / 2:
                self.heard = dict.fromkeys(self.hosts, now)
            late = self._late(now)
            self._last_beat = now
            self._renewed |= dict.fromkeys((name for name in self.hosts if name not in late), now)
            self._tell(f"beat {number} {now:.3f} {nodelist.fold(late) if late else ''}".rstrip())
            with self._changed:
                self._changed.wait_for(lambda: self._beating is None, site_settings.BEAT_S)

    def _late(self, now: float) -> list[str]:
        """Return the nodes that have been silent for so long that their leases must not be renewed.

        These leases run out before the nodes count as lost. Return an empty list if all other nodes are late: then
        this node may be the one that is cut off.
        """
        late = [name for name in self.hosts if now - self.heard.get(name, 0.0) > self._late_s and name != self._me]
        return late if len(late) < len({*self.hosts} - {self._me}) else []

    def _read(self, stream: IO[bytes], take: Callable[[bytes], None]) -> None:
        for line in stream:
            with self._changed:
                take(line)
                self._changed.notify_all()
        with self._changed:
            self._read_from -= 1
            self._changed.notify_all()

    def _read_error(self, line: bytes) -> None:
        self._complaint = (self._complaint + line)[-COMPLAINT_BYTES:]

    def _read_line(self, raw: bytes) -> None:
        line = raw.decode(errors="replace").rstrip("\n")
        piece = barrier.parse_line(line)
        if piece is not None:
            number, node, index, count, text = piece
            parts = self._parts.setdefault((number, node), {})
            parts[index] = text
            if len(parts) == count:
                self._whole.setdefault(number, {})[node] = "".join(parts[each] for each in sorted(parts))
                del self._parts[number, node]
            self._hear(node)
        elif line.startswith(f"{server.LINE} "):
            words = line.split(" ", 4)
            if len(words) >= 4 and words[3].isdigit():
                if words[2] == sampler.WORD and self._take_sample:
                    self._take_sample(line)
                self._handle(words[1], words[2], int(words[3]), words[4] if len(words) > 4 else "")
        elif line.startswith("[slurm_plugin] "):
            write(line)

    def _handle(self, node: str, word: str, number: int, text: str) -> None:
        self._hear(node)
        if word == "gone":
            self._gone.setdefault(number, {})[node] = text
        elif word == "turn":
            self.turn_lost = True
        elif word == "bye":
            self._left.add(node)
        elif word == "alive" and node in self.hosts:
            self.drained[node] = text

    def _hear(self, node: str) -> None:
        if node in self.hosts:
            self.answered = True
            self.heard[node] = self._clock()


def _started(argv: Sequence[str], environ: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    """Start a step with pipes. Raise MissingError if there is no srun."""
    pipe = subprocess.PIPE
    try:
        step = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, env=environ, start_new_session=True)
    except FileNotFoundError as error:
        raise MissingError("srun was not found on the PATH of the batch script") from error
    if step.stdin:
        with suppress(OSError):  # a long question must not block: srun reads only after all tasks have started
            fcntl.fcntl(step.stdin.fileno(), fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return step


def _wait_or_kill(step: "subprocess.Popen[bytes]", seconds: float) -> bool:
    """Wait up to `seconds` for a step, and return whether it ended. If it did not, kill it."""
    try:
        step.wait(max(0.0, seconds))
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(step.pid, 9)
        with suppress(subprocess.TimeoutExpired):
            step.wait(CLOSE_S)
        return False
    return True
