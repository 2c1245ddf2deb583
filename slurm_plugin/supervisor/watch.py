"""Watch a running program. Find a reason to end it: its nodes, no progress, its time limit, more nodes, or slowness.

The watcher does not poll Slurm's controller, because the guards report the state of their nodes.
"""

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from slurm_plugin.records import node_drains
from slurm_plugin.records.history import duration
from slurm_plugin.supervisor import progress
from slurm_plugin.supervisor.decide import Cause, Health
from slurm_plugin.supervisor.guard.client import Guards
from slurm_plugin.supervisor.launcher import Launcher
from slurm_plugin.supervisor.log import say
from slurm_plugin.supervisor.recording.client import Mover

# Slurm sends the signal of --signal up to 60 s early (sbatch(1)), and counts times in whole minutes.
EARLY_S: Final = 90.0
STOOD_STILL_S: Final = 60.0  # longer than any check takes
SILENT_CHECKS: Final = 10.0  # the number of checks of the log and the checkpoints in one `hang_timeout`
EXCUSED: Final = 3.0  # while a file server does not answer, a program may be silent for this many `hang_timeout`


@dataclass(frozen=True, slots=True)
class Interruption:
    """Why to end a program: the cause, the nodes to blame, and whether the program may save a checkpoint first."""

    cause: Cause
    why: str
    nodes: Mapping[str, Health] = field(default_factory=dict)
    save: bool = False
    saving_since: float | None = None  # since when it is saving, on the monotonic clock; None if it is not saving


def allowed_grace(asked_s: float, site: Mapping[str, Any], launcher: Launcher) -> float:
    """Return how many seconds the program may save: as the job requests, as far as the site and Slurm allow."""
    most_s, why = site.get("max_grace_s", asked_s), "the site allows {} (max_grace)"
    if launcher.ending:
        most_s, why = min(most_s, launcher.kill_s), "Slurm leaves {} (KillWait)"
    if most_s < asked_s:
        say(f"grace asked for {duration(asked_s)}, {why.format(duration(most_s))}")
    return float(min(asked_s, most_s))


@dataclass(slots=True)
class Watcher:
    """Checks a running program about once a second. `found` is the reason to end the program."""

    guards: Guards
    launcher: Launcher
    names: Collection[str]  # the nodes of the program, without spares
    grace_s: float  # 0: a drain or a near time limit does not end the program
    hang_s: float  # 0: do not detect hangs
    checkpoint: str  # the path besides the log that the program writes; empty: none
    time_left: Callable[[], float]  # seconds until Slurm ends the job; asks the controller
    reachable: Callable[[tuple[str, ...]], tuple[str, ...]]  # starts new guards, returns the nodes that answer
    drained: Callable[[Mapping[str, str]], Collection[str]]  # asks the controller which of these drains still stand
    grows: Callable[[], str] = str  # returns why the job should be requeued for more nodes; empty if it should not
    clock: Callable[[], float] = time.monotonic
    mover: Mover | None = None  # finds that the program is slow
    restarts: bool = True  # else no lost guard ends the program: Slurm finds lost nodes
    by_hand: bool = False  # only a request to save or a later run ends the program: its user debugs it
    found: Interruption | None = None
    _saved_at: float = 0.0
    _moved_at: float = 0.0
    _next_look: float = 0.0
    _looked_at: float = 0.0
    _seen: tuple[tuple[int, ...], float] = ((), 0.0)
    _excused_s: float = 0.0  # excused seconds since the last progress
    _logged: set[str] = field(default_factory=set)
    _asked: Mapping[str, str] = field(default_factory=dict)  # node -> the drain that the controller was asked about

    def look(self) -> bool:
        """Return whether there is a reason to end the program: its nodes, its time limit, a hang, or slowness."""
        if not self.look_at_nodes():
            self.found = self._time() or (None if self.by_hand else self._hang() or self._slow() or self._growth())
        return self.found is not None

    def look_at_nodes(self) -> bool:
        """Check only the nodes, for a step before the program. Return whether they are a reason to end the step."""
        if self.guards.turn_lost:
            self.launcher.told_to_end = True
            self.found = Interruption("nodes", "a later run of this job has begun")
        else:
            self.found = None if self.by_hand else self._nodes()
        return self.found is not None

    @property
    def lost(self) -> bool:
        """Whether a node of the program is silent, or a later run has begun. This does not query nodes."""
        return self.guards.turn_lost or bool(self._silent())

    def ended(self) -> None:
        """Check the time limit once more after the program has failed: it may have been told to save before."""
        self.found = self.found or self._time()

    def _silent(self) -> tuple[str, ...]:
        """Return the silent nodes of the program; none if no guard has ever run, which is no fault of the nodes."""
        silent = tuple(name for name in self.guards.silent() if name in self.names)
        return silent if self.restarts and self.guards.answered else ()

    def _nodes(self) -> Interruption | None:
        if self.restarts and (lost := self._lost()):
            return lost
        return self._drained() if self.grace_s else None

    def _lost(self) -> Interruption | None:
        if not self.guards.alive:
            return Interruption("nodes", "the guards' step has ended") if self.guards.answered else None
        if self.guards.isolated:
            return Interruption("nodes", "no other node of the job answers")
        if silent := self._silent():
            there = self.reachable(silent)
            lost = {name: Health("unreachable", "does not answer") for name in silent if name not in there}
            if lost:
                return Interruption("nodes", "nodes were lost", lost)
            return Interruption("nodes", "guards were lost")
        return None

    def _drained(self) -> Interruption | None:
        """Return an interruption if root's periodic check has drained nodes that no admin has resumed since."""
        drains = {name: drain for name in self.names if (drain := self.guards.drained.get(name))}
        told = {name: drain for name, drain in drains.items() if self._asked.get(name) != drain}
        self._asked = drains  # query the controller only once for each drain
        if not told:
            return None
        standing = self.drained(told)
        health = {
            name: Health("node_problem", node_drains.parts(drain)[0])
            for name, drain in told.items()
            if name in standing
        }
        return Interruption("nodes", "nodes were drained under it", health, save=True) if health else None

    def _time(self) -> Interruption | None:
        told = self.launcher.told_to_save
        if not self.grace_s or not told or told == self._saved_at:
            return None
        self._saved_at = told
        if self.launcher.told_to_stop:
            return Interruption("itself", "the job is stopped", save=True, saving_since=told)
        if self.launcher.ending:
            return Interruption("itself", "Slurm ends the job", save=True, saving_since=told)
        if self.time_left() > self.grace_s + EARLY_S:  # someone else sent the signal and only wants a checkpoint
            return None
        return Interruption("time", "its time limit is near", save=True, saving_since=told)

    def _growth(self) -> Interruption | None:
        why = self.grows()
        return Interruption("grow", why, save=True) if why else None

    def _hang(self) -> Interruption | None:
        now = self.clock()
        if not self.hang_s or now < self._next_look:
            return None
        if now - self._next_look > STOOD_STILL_S:  # this process and the program were suspended
            self._moved_at = 0.0
        self._next_look = now + self.hang_s / SILENT_CHECKS
        before, self._looked_at = self._looked_at, now
        written, newest = progress.written(), progress.newest(self.checkpoint)
        if not (written or self.checkpoint):  # its output is not a file: a hang cannot be detected
            return None
        seen = (written, newest.at if newest.whole else max(newest.at, self._seen[1]))
        excused = self._excused(newest, log=bool(written))
        if seen != self._seen or not self._moved_at:
            self._seen, self._moved_at, self._excused_s = seen, now, 0.0
        elif excused:  # excused time does not count
            self._moved_at += now - before
            self._excused_s += now - before
        elif now - self._moved_at >= self.hang_s:
            return Interruption("hang", f"it has written nothing for {now - self._moved_at + self._excused_s:.0f} s")
        return None

    def _slow(self) -> Interruption | None:
        why = self.mover.look() if self.mover else ""
        return Interruption("slow", why, save=self.grace_s > 0) if why else None

    def _excused(self, newest: progress.Newest, *, log: bool) -> bool:
        """Return whether a program without output is excused. `log`: whether its log is a file."""
        if newest.away:  # the program waits for this server too, but the server may never return
            most_s = EXCUSED * self.hang_s
            self._say_once(f"cannot be read, its server does not answer: {most_s:.0f} s without output are no hang now")
            return self._excused_s < most_s
        if newest.slow or newest.cut:
            limit = f"in {progress.DEADLINE_S:g} s" if newest.slow else f"with its over {progress.MOST_ENTRIES} files"
            what = "only its log tells whether the program hangs" if log else "its log is no file: no hang can be seen"
            self._say_once(f"could not be looked through {limit}, and {what}")
        return (newest.slow or newest.cut) and not log

    def _say_once(self, text: str) -> None:
        if text not in self._logged:
            self._logged.add(text)
            say(f"{self.checkpoint} {text}")
