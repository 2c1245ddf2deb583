"""The guard: a process on each node of a job that may be restarted. It is a task of a step beside the program.

The guard answers the requests of the barrier and the recheck, ends the processes of an attempt, and holds the node's
**lease**. The lease ends `LEASE_S` after the last beat. The guard then stops the ranks on its node (SIGSTOP). If the
network is cut, the supervisor relies on that before it starts the next attempt. After a fresh beat the guard continues
the ranks (SIGCONT). If no fresh beat comes for another `lost_s` seconds, the guard ends the ranks.

Every guard gets the same lines on stdin: `ask NUMBER JSON`, `beat NUMBER SECONDS [NODELIST]`, `wipe NUMBER`,
`save SIGNAL`, `dump NUMBER`, `sweep NODELIST`, `usage JSON` (see guard.sampler), `bye NODELIST`. SECONDS is the
sender's monotonic clock. A beat does not renew the leases of its NODELIST, because these nodes have not answered for
long. After `sweep`, the guard's end removes the user's folder in /tmp: the run no longer needs this node.

The guard writes answers (`barrier.answer_lines`) and `slurm_plugin-guard NODE WORD NUMBER [TEXT]` to stdout. WORD is
`alive` (TEXT: why and when root's periodic check drained this node, see node_drains.told), `gone` (NUMBER of the wipe,
TEXT: how many processes are left), `turn` (a later run of the job has begun on other nodes), `usage` (a sample, see
guard.sampler) or `bye` (this guard has received its `bye`).
"""

import json
import os
import select
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from types import FrameType
from typing import Any, NamedTuple

from hostfiles import nodelist
from prechecks import boot_state
from slurm_plugin.records import node_directory, node_drains, site_settings
from slurm_plugin.slurm import connect
from slurm_plugin.supervisor.guard import barrier, fencing, first_node, processes, sampler
from slurm_plugin.supervisor.requeue import by_owner

LINE = sampler.LINE
FRESH_S = 2.0  # the longest delay of a beat that continues stopped ranks
TERM_VALID_S = 60.0  # time after SIGTERM in which Slurm ends the job on this node; KillWait is 30 s
EOF_S = 5.0  # time from the supervisor's end until the guard ends the ranks, unless Slurm is ending the job
END_POLL_S = 0.1
SILENT_S = 5.0  # without a beat, which comes every second: Slurm ends the job because the first node is dead
WIPE_S = 10.0
SAVE_WAIT_S = 60.0  # for a program that does not handle the signal yet: it imports its modules
FREEZE_S = 1.0
BEATS_KEPT = 30  # the fastest of these beats gives the difference between the two clocks
MOST_BYTES = 1 << 24  # bytes of the longest line on stdin
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_SIGNALS = (*_ENDING, signal.SIGUSR1, signal.SIGUSR2)


@dataclass(slots=True)
class Guard:
    """One node's guard. `first`: whether the supervisor runs on this node, with the pid `supervisor`."""

    node: str
    job_id: int
    restart: int
    directory: str  # the job's directory
    first: bool = False
    supervisor: int = 0
    above: int = 0  # the parent of that process: Slurm's, or the worker of an experiment
    index: int = 0
    nodes: int = 1
    cluster: str = ""  # the name of the cluster, for `fencing`
    clock: Callable[[], float] = time.monotonic
    lease_ends: float | None = None  # None until the first beat: no rank runs before that beat
    ended: bool = False  # whether stdin is at its end
    done: bool = False
    lost_s: float = site_settings.LOST_S
    term_at: float | None = None  # the time of the last SIGTERM or SIGINT
    state: str = ""  # the directory of root's records on this node
    run: str = ""  # the names of the run's directories
    swept: bool = False  # whether this run uses the node no more
    frozen: bool = False  # whether the ranks are stopped
    # This clock minus the sender's clock at the last beats, including late beats.
    apart: deque[float] = field(default_factory=lambda: deque(maxlen=BEATS_KEPT))
    turn_seen: bool = False  # whether the file `turn` has named this run
    watch: int = -1  # the pipe from the process that watches `turn`
    wake: int = -1  # a pipe that a signal makes readable
    orphaned: Callable[[], object] | None = None  # for a job that Slurm ends while its supervisor is silent
    rest: bytes = b""  # the unfinished last line of stdin
    sampler: int = 0  # the pid of the process that measures this node
    saving: int = 0  # the pid of the process that sends the last checkpoint signal

    def serve(self) -> None:
        """Obey the supervisor until it sends `bye` or ends before the first beat, or until `_expire` returns True."""
        while not self.done:
            files = [] if self.ended else [0]
            files += [each for each in (self.watch, self.wake) if each >= 0]
            ready, _, _ = select.select(files, [], [], self._wait_s())
            _reap()
            if self.wake in ready:
                os.read(self.wake, 64)
                if self.orphaned and self.terminating and self.silent:
                    _in_a_child(self.orphaned)
                    self.orphaned = None
            # Check this before reading: a node that was suspended may have old beats in its pipe.
            if self.lease_ends is not None and self.clock() >= self.lease_ends:
                if self._expire():
                    return
                continue
            if self.watch in ready:
                self._read_turn()
            if 0 in ready:
                self._read()

    def _expire(self) -> bool:
        """Stop the ranks when the lease ends. End them if it ends again or stdin is closed. Return whether to exit."""
        if not self.ended and not self.frozen:
            processes.freeze(self.job_id, self.directory, self._kept(), FREEZE_S)
            self.frozen, self.lease_ends = True, self.clock() + self.lost_s
            return False
        if not (self.ended and self.terminating):  # otherwise Slurm ends the job on this node
            self._end_ranks()
        return True

    @property
    def terminating(self) -> bool:
        """Whether Slurm is about to end the job on this node."""
        return self.term_at is not None and self.clock() - self.term_at < TERM_VALID_S

    @property
    def silent(self) -> bool:
        """Whether the supervisor has stopped sending beats."""
        if self.lease_ends is None:
            return False
        return self.frozen or self.lease_ends - self.clock() < site_settings.LEASE_S - SILENT_S

    def _read_turn(self) -> None:
        """Read the watcher's byte. End the ranks if a later run has begun. Replace a watcher that has died."""
        word = os.read(self.watch, 1)
        if word == fencing.SEEN:
            self.turn_seen = True
            return
        os.close(self.watch)
        self.watch = -1
        if word == fencing.LOST:
            self._end_ranks()
            self._say("turn", self.restart)
        else:
            self.watch = fencing.watched(self.directory, self.restart, self.cluster, seen=self.turn_seen)

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
            if not self.done:  # else `bye` was among these lines
                self.obey(line.decode())

    def obey(self, line: str) -> None:
        """Execute one line. Ignore an unknown first word: it comes from a later version."""
        word, _, rest = line.partition(" ")
        if word == "ask":
            number, _, text = rest.partition(" ")
            request = barrier.Request(**json.loads(text))
            self.state = str(request.settings.get("state", ""))
            self.run = request.directory
            _in_a_child(lambda: barrier.answer(request, int(number)))
        elif word == "beat":
            number, _, sent = rest.partition(" ")
            sent, _, late = sent.partition(" ")
            renews = not late or self.node not in nodelist.expand(late)
            self._beat(int(number), float(sent or self.clock()), renews=renews)
        elif word == "wipe":
            self._say("gone", int(rest), str(self._end_ranks()))
            if self.lease_ends is not None:  # otherwise no rank has begun here
                self.frozen, self.lease_ends = False, self.clock() + site_settings.LEASE_S
        elif word == "save":
            if (wanted := int(rest)) in processes.SIGNALS:
                work = partial(processes.request_save, self.job_id, self.directory, self._kept(), wanted)
                self._end_saving()
                self.saving = _in_a_child(partial(work, wait_s=SAVE_WAIT_S))
        elif word == "sweep":
            self.swept = self.swept or self.node in nodelist.expand(rest)
        elif word == "dump":
            _in_a_child(lambda: processes.dump_stacks(self.job_id, self.directory, self._kept()))
        elif word == sampler.WORD and not self.sampler:
            self.sampler = sampler.start(rest, self.node, self.job_id, self.directory, self._kept())
        elif word == "bye" and not self.done and self.node in nodelist.expand(rest):
            self.done = True
            self._say("bye", 0)

    def leave(self) -> None:
        """Remove the user's folder in /tmp, unless other guards of this run follow and need it.

        They do after a `bye`, or if only this step was lost. If the supervisor was killed, Slurm ends the job soon.
        """
        until = self.clock() + EOF_S
        while self.ended and not (self.swept or self.terminating) and node_directory.has_spare(self.run):
            if self.clock() > until:
                return
            time.sleep(END_POLL_S)
        if self.swept or self.ended or not self.done:
            node_directory.remove_spare(self.run)

    def _beat(self, number: int, sent: float, *, renews: bool = True) -> None:
        if self.lease_ends is None and self.first:
            self.watch = fencing.watched(self.directory, self.restart, self.cluster)
        now = self.clock()
        self.apart.append(now - sent)
        # Beats that queued up during a network cut arrive late. They do not show that the supervisor is alive now.
        late_s = now - sent - min(self.apart)
        if self.frozen and late_s > FRESH_S:
            return
        if renews:
            if self.frozen:
                self.frozen = False
                processes.signal_all(self.job_id, self.directory, self._kept(), signal.SIGCONT)
            self.lease_ends = max(self.lease_ends or 0.0, now - late_s + site_settings.LEASE_S)
        if (number + self.index) % site_settings.beat_period(self.nodes) == 0:
            self._say("alive", number, self._drained())

    def _drained(self) -> str:
        """Return why and when root's periodic check drained this node; empty if it did not."""
        if not self.state:
            return ""
        try:
            return node_drains.told(boot_state.load(self.state, node_drains.DRAINED))
        except OSError:
            return ""

    def _kept(self) -> tuple[int, ...]:
        return (self.supervisor, self.above) if self.first else ()

    def _end_saving(self) -> None:
        """End the child that waits for the program to handle a checkpoint signal: the next program shall not get it."""
        with suppress(ChildProcessError):  # it has ended
            if self.saving and not os.waitpid(self.saving, os.WNOHANG)[0]:
                os.kill(self.saving, signal.SIGKILL)
        self.saving = 0

    def _end_ranks(self) -> int:
        self._end_saving()
        return processes.wipe(self.job_id, self.directory, self._kept(), WIPE_S)

    def _say(self, word: str, number: int, text: str = "") -> None:
        with suppress(OSError):  # the first node is gone
            os.write(1, f"{LINE} {self.node} {word} {number} {text}".rstrip().encode("ascii", "replace") + b"\n")

    def note_signal(self, number: int, _frame: FrameType | None) -> None:
        """Record the time of a SIGTERM or SIGINT: Slurm ends the job. The program decides how long that takes."""
        if number in (signal.SIGTERM, signal.SIGINT):
            self.term_at = self.clock()


class Orders(NamedTuple):
    """What the supervisor tells the guards of a run."""

    first: str  # the node of the supervisor
    supervisor: int  # its pid there
    restart: int
    lost_s: float
    slurm_bin: str  # the directory of Slurm's commands
    plan: Mapping[str, Any]  # the fields of by_owner.Plan


def main(given: str) -> int:
    """Run the guard of this node. `given`: Orders as JSON."""
    first, supervisor, restart, lost_s, slurm_bin, fields = Orders(**json.loads(given))
    environ, plan = os.environ, by_owner.Plan(**fields)
    node = environ["SLURMD_NODENAME"]
    guard = Guard(
        node=node,
        job_id=int(environ["SLURM_JOB_ID"]),
        restart=restart,
        directory=plan.directory,
        first=node == first,
        supervisor=supervisor,
        above=processes.parent(supervisor) if node == first else 0,
        index=int(environ.get("SLURM_PROCID", "0")),
        nodes=int(environ.get("SLURM_STEP_NUM_TASKS") or environ.get("SLURM_NTASKS") or "1"),
        cluster=plan.cluster,
        lost_s=lost_s,
    )
    place = first_node.watcher_place(guard.index, guard.nodes)
    watches = (plan.no_kill or (plan.retries and not site_settings.deployed())) and not guard.first

    def requeue(*, ending: bool) -> None:
        door = connect(directory=slurm_bin, in_job=True)
        first_node.requeue_orphan(guard.job_id, restart, first, place or 0, door, plan=plan, ending=ending)

    guard.orphaned = partial(requeue, ending=True) if watches and place == first_node.FIRST_WATCHER else None
    guard.wake, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    for number in _SIGNALS:
        signal.signal(number, guard.note_signal)
    try:
        guard.serve()
        guard.leave()
    finally:
        sampler.stop(guard.sampler)
    if watches and not (guard.done or guard.terminating) and place is not None:
        for number in _ENDING:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # it ends a pause of what follows
        requeue(ending=False)
    return 0


def _in_a_child(work: Callable[[], object]) -> int:
    """Run `work` in a child process: it may take ten seconds or hang, and the guard must read beats. Return its pid."""
    if pid := os.fork():
        return pid
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
