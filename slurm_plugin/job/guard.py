"""The guard: our one process on every node of a job that may be restarted, a task of a step beside the program.

It answers questions (the barrier's, the recheck's), ends what an attempt left behind, and holds the node's **lease**:
`LEASE_S` after the last beat that the supervisor sent and that came here, nobody can know what the ranks here still
write, so they are stopped (SIGSTOP). That is what a supervisor on the other side of a cut network counts on before it
starts the next attempt. A fresh beat lets them go on; without one they are ended when the node counts as lost.

Lines on stdin, the same for every guard: `ask NUMBER JSON`, `beat NUMBER SECONDS` (the sender's monotonic clock),
`wipe NUMBER`, `dump NUMBER`, `bye NODELIST`. Lines on stdout: the answers' own (`barrier.split`), and
`slurm_plugin-guard NODE WORD NUMBER [TEXT]` with the words `alive` (TEXT: why root's periodic check drained this node),
`gone` (NUMBER of the wipe; TEXT: how many are left) and `turn` (a later run of the job has begun elsewhere).
"""

import json
import os
import select
import signal
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from types import FrameType

from hostfiles import nodelist
from prechecks import seen
from slurm_plugin.hooks import marker
from slurm_plugin.job import barrier, lease, orphan, stacks, turn
from slurm_plugin.job.wipe import signal_all, wipe
from slurm_plugin.slurm import connect

LINE = "slurm_plugin-guard"
BEAT_S = 2.0
FRESH_S = 2.0  # what a beat may have been on its way, to let stopped ranks go on
TOLD_S = 60.0  # for how long Slurm's SIGTERM speaks for Slurm ending the job here by itself; KillWait is 30 s
EOF_S = 5.0  # from the supervisor's end until the ranks are ended, where Slurm has not begun to end them itself
WIPE_S = 10.0
ANSWERS_A_BEAT = 64  # guards that answer one beat, more of large jobs: the rest have their turn at the next ones
LONGEST_PERIOD = 8  # beats until every guard has had its turn, however many there are
# For how long ranks may run on after `lost_s` of silence: those beside a supervisor that is cut off alone.
# It has missed every guard's turn by then, beats no more, and the lease there runs out.
CUT_OFF_S = LONGEST_PERIOD * BEAT_S + lease.LEASE_S
BEATS_KEPT = 30  # the quickest of the last ones tells how far the two clocks are apart
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
MOST_BYTES = 1 << 24  # of a line on stdin


def period(nodes: int) -> int:
    """In how many beats every guard of so many nodes answers once."""
    return min(LONGEST_PERIOD, -(-nodes // ANSWERS_A_BEAT))


@dataclass(slots=True)
class Guard:
    """One node's guard. `first`: whether it stands beside the supervisor, whose pid `supervisor` is then."""

    node: str
    job_id: int
    restart: int
    directory: str  # the job's own
    first: bool = False
    supervisor: int = 0
    index: int = 0
    nodes: int = 1
    cluster: str = ""  # its name, for the turn
    clock: Callable[[], float] = time.monotonic
    lease_ends: float | None = None  # None until the first beat: nothing runs yet
    ended: bool = False  # stdin has come to its end
    done: bool = False
    lost_s: float = lease.LOST_S
    told_at: float | None = None  # when Slurm said last that it ends the job
    state: str = ""  # the directory of what root remembers on this node
    frozen: bool = False  # whether the ranks are stopped
    # Our clock less the sender's at the last beats, late ones or not.
    apart: deque[float] = field(default_factory=lambda: deque(maxlen=BEATS_KEPT))
    turn_seen: bool = False  # whether it was this run's turn
    watch: int = -1  # the pipe from the one who looks whose turn it is
    rest: bytes = b""

    def serve(self) -> None:
        """Until the supervisor says bye, or the lease has run out."""
        while not self.done:
            files = [] if self.ended else [0]
            files += [self.watch] if self.watch >= 0 else []
            ready, _, _ = select.select(files, [], [], self._wait_s())
            _reap()
            # First: where this node stood still, or the network, the ranks wait until a beat is read that is fresh.
            if self.lease_ends is not None and self.clock() >= self.lease_ends:
                if self._over():
                    return
                continue
            if self.watch in ready:
                self._look_at_turn()
            if 0 in ready:
                self._read()

    def _over(self) -> bool:
        """The lease has run out: stop the ranks, and end them where that was not enough. Whether they are ended."""
        if not self.ended and not self.frozen:
            signal_all(self.job_id, self.directory, self._kept(), signal.SIGSTOP)
            self.frozen, self.lease_ends = True, self.clock() + self.lost_s
            return False
        if not (self.ended and self.told_to_end):  # else Slurm itself ends the job on this node
            self._end_ranks()
        return True

    @property
    def told_to_end(self) -> bool:
        """Whether Slurm is about to end the job on this node."""
        return self.told_at is not None and self.clock() - self.told_at < TOLD_S

    def _look_at_turn(self) -> None:
        """A later run has begun; or who looks for one has been ended, and another one is wanted."""
        word = os.read(self.watch, 1)
        if word == turn.SEEN:
            self.turn_seen = True
            return
        os.close(self.watch)
        self.watch = -1
        if word == turn.LOST:
            self._end_ranks()
            self._say("turn", self.restart)
        else:
            self.watch = turn.watched(self.directory, self.restart, self.cluster, seen=self.turn_seen)

    def _wait_s(self) -> float | None:
        if self.lease_ends is None:
            return None
        return max(0.0, self.lease_ends - self.clock())

    def _read(self) -> None:
        piece = os.read(0, 1 << 16)
        if not piece:
            self.ended = True
            if self.lease_ends is None:
                self.done = True
            else:
                self.lease_ends = min(self.lease_ends, self.clock() + EOF_S)
            return
        *lines, self.rest = (self.rest + piece).split(b"\n")
        if len(self.rest) > MOST_BYTES:
            raise ValueError("a line without an end on the guard's stdin")
        for line in lines:
            self.obey(line.decode())

    def obey(self, line: str) -> None:
        """Do what one line says. A word of a later version is passed over."""
        word, _, rest = line.partition(" ")
        if word == "ask":
            number, _, text = rest.partition(" ")
            request = barrier.Request(**json.loads(text))
            self.state = str(request.settings.get("state", ""))
            _in_a_child(lambda: barrier.answer(request, int(number)))
        elif word == "beat":
            number, _, sent = rest.partition(" ")
            self._beat(int(number), float(sent or self.clock()))
        elif word == "wipe":
            self._say("gone", int(rest), str(self._end_ranks()))
            if self.lease_ends is not None:  # else there is none: nothing has begun here
                self.frozen, self.lease_ends = False, self.clock() + lease.LEASE_S
        elif word == "dump":
            _in_a_child(lambda: stacks.dump(self.job_id, self.directory, self._kept()))
        elif word == "bye":
            self.done = self.done or self.node in nodelist.expand(rest)

    def _beat(self, number: int, sent: float) -> None:
        if self.lease_ends is None and self.first:
            self.watch = turn.watched(self.directory, self.restart, self.cluster)
        now = self.clock()
        self.apart.append(now - sent)
        # Beats that queued up behind a cut come one by one, and say nothing of now.
        late_s = now - sent - min(self.apart)
        if self.frozen:
            if late_s > FRESH_S:
                return
            self.frozen = False
            signal_all(self.job_id, self.directory, self._kept(), signal.SIGCONT)
        self.lease_ends = max(self.lease_ends or 0.0, now - late_s + lease.LEASE_S)
        if (number + self.index) % period(self.nodes) == 0:
            self._say("alive", number, self._drained())

    def _drained(self) -> str:
        """Why root's own check has drained this node, as it has written down; empty where it has not."""
        if not self.state:
            return ""
        try:
            facts = seen.load(self.state, marker.DRAINED)
        except OSError:
            return ""
        text = str(facts.get("reason", "")) if facts.get("done") else ""
        return " ".join(text[:400].split())

    def _kept(self) -> tuple[int, ...]:
        return (self.supervisor,) if self.first else ()

    def _end_ranks(self) -> int:
        return wipe(self.job_id, self.directory, self._kept(), WIPE_S)

    def _say(self, word: str, number: int, text: str = "") -> None:
        with suppress(OSError):  # the first node is gone
            os.write(1, f"{LINE} {self.node} {word} {number} {text}".rstrip().encode("ascii", "replace") + b"\n")

    def to_end(self, number: int, _frame: FrameType | None) -> None:
        """A signal from Slurm, which ends the job or has it saved. The program decides how long that takes."""
        if number in (signal.SIGTERM, signal.SIGINT):
            self.told_at = self.clock()


def main(
    first: str, supervisor: int, restart: int, directory: str, *, cluster: str, no_kill: bool, lost_s: float
) -> int:
    """The guard of this node. `no_kill`: whether Slurm keeps the job where its first node is gone."""
    environ = os.environ
    node = environ["SLURMD_NODENAME"]
    guard = Guard(
        node=node,
        job_id=int(environ["SLURM_JOB_ID"]),
        restart=restart,
        directory=directory,
        first=node == first,
        supervisor=supervisor,
        index=int(environ.get("SLURM_PROCID", "0")),
        nodes=int(environ.get("SLURM_STEP_NUM_TASKS") or environ.get("SLURM_NTASKS") or "1"),
        cluster=cluster,
        lost_s=lost_s,
    )
    for number in _SIGNALS:
        signal.signal(number, guard.to_end)
    guard.serve()
    place = orphan.place(guard.index, guard.nodes)
    if no_kill and not (guard.done or guard.told_to_end or guard.first) and place is not None:
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        orphan.look_after(guard.job_id, restart, first, place, connect())
    return 0


def _in_a_child(work: Callable[[], object]) -> None:
    """Questions are answered beside the beats: a check may take its ten seconds, or hang."""
    if os.fork():
        return
    code = 1
    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        work()
        sys.stdout.flush()
        code = 0
    finally:
        os._exit(code)


def _reap() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
