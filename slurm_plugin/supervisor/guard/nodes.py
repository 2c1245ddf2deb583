"""The nodes of a run: query the nodes through their guards, end an attempt's processes, give up lost nodes."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import prechecks
from hostfiles import nodelist
from slurm_plugin.records.site_settings import LOST_S
from slurm_plugin.supervisor.decide import Health
from slurm_plugin.supervisor.guard import barrier
from slurm_plugin.supervisor.guard.client import Guards
from slurm_plugin.supervisor.log import say, write

WIPE_S: Final = 12.0  # longer than a guard's own limit (guard.server.WIPE_S)
REACH_S: Final = 5.0  # time for a guard to start and answer on a node that may be lost


@dataclass(slots=True)
class Nodes:
    """The usable nodes of a run, in the job's order, and their guards."""

    names: tuple[str, ...]
    command: Sequence[str]  # starts a guard
    give_up: Callable[[], bool]
    lost_s: float = LOST_S  # seconds of silence after which a node is lost
    leased: bool = False  # whether the guards get beats after the first answer
    fenced_at: float = 0.0  # the time on the guards' clock by which the ranks on lost nodes have certainly ended
    groups: tuple[tuple[str, ...], ...] = ()  # the nodes of each group of a heterogeneous job
    devices: bool = False  # whether the guards' step shares the job's devices, to check and to measure them
    slurm_bin: str = ""  # the directory of Slurm's commands: the PATH may have a user's own srun
    _guards: Guards | None = None

    @property
    def guards(self) -> Guards:
        """The guards. They start on first use."""
        if self._guards is None:
            self._guards = self._started(self.names)
        return self._guards

    @property
    def started(self) -> Guards | None:
        """The guards, if they run already."""
        return self._guards if self._guards and self._guards.alive else None

    def ask(self, request: barrier.Request) -> barrier.Answers:
        """Send the request to every node and return the answers."""
        if self._guards is not None and not self._guards.alive:
            self._restart(self._guards.hosts)
        guards = self.guards
        said, complaint = guards.ask(barrier.text(request), barrier.deadline_s(request), self.give_up)
        if self.leased and said:
            guards.arm()
        return barrier.answers(self.names, said, complaint)

    def reachable(self, names: tuple[str, ...], request: barrier.Request) -> tuple[str, ...]:
        """Start new guards on these nodes. Return the nodes whose new guard answers."""
        fresh = self._started(names)
        quick = replace(request, check=False, task_script=None, devices=False)
        said, _ = fresh.ask(barrier.text(quick), REACH_S, self.give_up)
        fresh.close(names)
        return tuple(name for name in names if name in said)

    def wipe(self) -> dict[str, Health]:
        """End the processes of an attempt on all nodes. Return the condition of each node that may still have any.

        If no node answers, the condition of every node is `unknown`: the step has failed, not the nodes.
        """
        if not self.guards.alive:
            self.renew()
        left = self.guards.wipe(WIPE_S, self.give_up)
        silent = Health("unreachable", "does not say that its processes have ended") if left else Health("unknown")
        return {
            name: Health("job_problem", f"{left[name]} processes of this attempt cannot be ended")
            if name in left
            else silent
            for name in self.names
            if left.get(name) != "0"
        }

    def renew(self) -> None:
        """Start new guards on the same nodes. The caller has seen that the old guards' step has ended."""
        if self._guards is not None:
            self._restart(self._guards.hosts).arm()

    def give_back(self, names: Sequence[str], dirty: Collection[str]) -> None:
        """Remove these nodes from the run. `dirty`: nodes on which ranks may still write."""
        self.names = tuple(name for name in self.names if name not in names)
        guards = self._guards
        if guards is not None and names:
            guards.sweep(names)
        if guards is not None and ({*dirty} & {*guards.hosts} or not guards.alive):
            self._restart(self.names, dirty)
        elif guards is not None:
            guards.release(names)

    def _restart(self, names: Sequence[str], dirty: Collection[str] = ()) -> Guards:
        """Start new guards on these nodes. Until `fenced_at` the old guards may end ranks, even of a new attempt."""
        if self._guards is not None:
            fenced_at = self._guards.close([name for name in self._guards.hosts if name not in dirty])
            self.fenced_at = max(self.fenced_at, fenced_at)
        self._guards = fresh = self._started(names)
        return fresh

    def _started(self, names: Sequence[str]) -> Guards:
        more: Any = {"devices": self.devices, "slurm_bin": self.slurm_bin, "lost_s": self.lost_s}
        return Guards(self.command, names, groups=self.groups, **more)

    def close(self, dirty: Collection[str] = ()) -> None:
        """End the guards. On `dirty` nodes ranks of the last attempt may still run: the guards there end them first."""
        if self._guards is not None:
            self._guards.sweep(self._guards.hosts)
            self._guards.close([name for name in self._guards.hosts if name not in dirty])


def show(answers: barrier.Answers) -> dict[str, Health]:
    """Write the nodes' verdicts into the log. Return the condition of each node.

    A passed item gets one line for all nodes. A skipped item gets no line. Any other verdict gets a line for each node.
    """
    if answers.complaint:
        say(f"srun said: {answers.complaint}")
    passed: dict[str, list[str]] = {}
    for name, report in answers.reports.items():
        for verdict in report.items if report else ():
            if verdict.verdict == prechecks.OK:
                passed.setdefault(verdict.keyword, []).append(name)
    for keyword, names in passed.items():
        say(f"{keyword}: {prechecks.OK} on {nodelist.fold(names)}")
    found = barrier.conditions(answers)
    for name, report in answers.reports.items():
        for verdict in report.items if report else ():
            if verdict.verdict not in (prechecks.OK, prechecks.SKIPPED):
                write(prechecks.line(name, verdict))
        if report is None:
            say(f"{name} {found[name].what}")
    for note in dict.fromkeys(answers.notes.values()):
        say(f"{nodelist.fold([name for name in answers.reports if answers.notes.get(name) == note])}: {note}")
    return found


def only(answers: barrier.Answers, names: Sequence[str]) -> barrier.Answers:
    """Return the answers of these nodes only."""
    wanted = set(names)
    reports: Mapping[str, prechecks.Report | None] = {
        name: report for name, report in answers.reports.items() if name in wanted
    }
    devices = tuple(line for line in answers.devices if line.partition(" ")[0] in wanted)
    return replace(answers, reports=reports, devices=devices)
