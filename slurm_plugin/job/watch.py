"""What is looked at while a program runs, and what ends it: lost or drained nodes, no progress, no time left.

Slurm's controller is not asked on a schedule: nodes tell of themselves through their guards.
"""

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from slurm_plugin.decide import Cause, Health
from slurm_plugin.job import progress
from slurm_plugin.job.guards import Guards
from slurm_plugin.job.launch import Launcher
from slurm_plugin.job.log import say

# Slurm sends the signal of --signal up to 60 s early (sbatch(1)), and knows times in whole minutes.
EARLY_S: Final = 90.0
STOOD_STILL_S: Final = 60.0  # more than any look of ours takes
SILENT_CHECKS: Final = 10.0  # how often in `hang_timeout` the log and the checkpoints are looked at
EXCUSED: Final = 3.0  # for how many `hang_timeout` a server that is away excuses a program that writes nothing


@dataclass(frozen=True, slots=True)
class Interruption:
    """Why a program is to be ended: what for, the nodes that are the reason, whether it may save before."""

    cause: Cause
    why: str
    nodes: Mapping[str, Health] = field(default_factory=dict)
    save: bool = False
    saving_since: float | None = None  # on the monotonic clock, where it has been told already


@dataclass(slots=True)
class Watcher:
    """Looks about once a second while a program runs. `found` is why it is to be ended."""

    guards: Guards
    launcher: Launcher
    names: Collection[str]  # where the program runs: what becomes of a spare node is none of its business
    grace_s: float  # 0: neither a drain nor the time limit is looked for
    hang_s: float  # 0: no hang is looked for
    places: tuple[str, ...]  # besides the log, where the program writes: checkpoints, logs of its tasks
    time_left: Callable[[], float]  # seconds until Slurm ends the job; asks the controller
    reachable: Callable[[tuple[str, ...]], tuple[str, ...]]  # which of these nodes answer when asked anew
    drained: Callable[[tuple[str, ...]], tuple[str, ...]]  # which of these are drained by us, as the controller has it
    clock: Callable[[], float] = time.monotonic
    found: Interruption | None = None
    _saved_at: float = 0.0
    _moved_at: float = 0.0
    _next_look: float = 0.0
    _looked_at: float = 0.0
    _seen: tuple[tuple[int, ...], float] = ((), 0.0)
    _excused_s: float = 0.0  # of the time since it moved last
    _said: set[str] = field(default_factory=set)
    _believed: dict[str, str] = field(default_factory=dict)

    def look(self) -> bool:
        """Whether there is reason to end the program."""
        if not self.look_at_nodes():
            self.found = self._time() or self._hang()
        return self.found is not None

    def look_at_nodes(self) -> bool:
        """The same as far as it is the nodes': for what runs before the program, which has no checkpoint and no log."""
        if self.guards.turn_lost:
            self.launcher.told_to_end = True
            self.found = Interruption("nodes", "a later run of this job has begun")
        else:
            self.found = self._nodes()
        return self.found is not None

    @property
    def lost(self) -> bool:
        """Whether a node of the program's does not answer now, or a later run has begun; nobody is asked."""
        return self.guards.turn_lost or any(name in self.names for name in self.guards.silent())

    def ended(self) -> None:
        """The program has failed: where it was told to save, it may have done so and ended before the next look."""
        self.found = self.found or self._time()

    def _nodes(self) -> Interruption | None:
        if not self.guards.alive:
            return Interruption("nodes", "the guards' step has ended")
        if self.guards.isolated:
            return Interruption("nodes", "no other node of the job answers")
        if silent := tuple(name for name in self.guards.silent() if name in self.names):
            there = self.reachable(silent)
            lost = {name: Health("unreachable", "does not answer") for name in silent if name not in there}
            if lost:
                return Interruption("nodes", "nodes were lost", lost)
            return Interruption("nodes", "guards were lost")
        return self._drained() if self.grace_s else None

    def _drained(self) -> Interruption | None:
        """Nodes that root's periodic check has drained. What it wrote may be over: an admin resumes a node too."""
        found = ((name, self.guards.drained.get(name, "")) for name in self.names)
        told = {name: why for name, why in found if why and self._believed.get(name) != why}
        if not told:
            return None
        self._believed.update(told)  # asked once for each reason
        standing = self.drained(tuple(told))
        health = {name: Health("node_problem", why) for name, why in told.items() if name in standing}
        return Interruption("nodes", "nodes were drained under it", health, save=True) if health else None

    def _time(self) -> Interruption | None:
        told = self.launcher.told_to_save
        if not self.grace_s or not told or told == self._saved_at:
            return None
        self._saved_at = told
        if self.time_left() > self.grace_s + EARLY_S:  # somebody else's signal: a checkpoint was asked for, no more
            return None
        return Interruption("time", "its time limit is near", save=True, saving_since=told)

    def _hang(self) -> Interruption | None:
        now = self.clock()
        if not self.hang_s or now < self._next_look:
            return None
        if now - self._next_look > STOOD_STILL_S:  # we stood still, and the program with us: a job that is suspended
            self._moved_at = 0.0
        self._next_look = now + self.hang_s / SILENT_CHECKS
        before, self._looked_at = self._looked_at, now
        written, newest = progress.written(), progress.newest_of(self.places)
        if not (written or self.places):  # its output is no file: nobody could tell
            return None
        seen = (written, newest.at if newest.whole else max(newest.at, self._seen[1]))
        excused = self._excused(newest, log=bool(written))
        if seen != self._seen or not self._moved_at:
            self._seen, self._moved_at, self._excused_s = seen, now, 0.0
        elif excused:  # such time is none of a hang
            self._moved_at += now - before
            self._excused_s += now - before
        elif now - self._moved_at >= self.hang_s:
            return Interruption("hang", f"it has written nothing for {now - self._moved_at + self._excused_s:.0f} s")
        return None

    def _excused(self, newest: progress.Newest, *, log: bool) -> bool:
        """Whether a program that seems to write nothing may do so all the same. `log`: whether its log is a file."""
        if newest.away:  # who writes there waits as we do; but a place may be lost for good
            most_s = EXCUSED * self.hang_s
            self._say_once(f"cannot be read, its server does not answer: {most_s:.0f} s without a word are no hang now")
            return self._excused_s < most_s
        if newest.slow:
            what = "only its log tells whether the program hangs" if log else "its log is no file: no hang can be seen"
            self._say_once(f"could not be looked through in {progress.DEADLINE_S:g} s, and {what}")
        return newest.slow and not log

    def _say_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            say(f"{', '.join(self.places)} {text}")
