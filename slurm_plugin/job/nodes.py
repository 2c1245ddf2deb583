"""A run's nodes and what is known of each: asked through the guards, chosen for a launch, given up when lost."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import prechecks
from slurm_plugin.decide import Health
from slurm_plugin.job import barrier
from slurm_plugin.job.guards import Guards
from slurm_plugin.job.lease import LOST_S
from slurm_plugin.job.log import say

WIPE_S: Final = 12.0  # more than a guard takes (guard.WIPE_S)
REACH_S: Final = 5.0  # for a guard to start and answer on a node that may be gone


@dataclass(slots=True)
class Nodes:
    """The nodes of a run that may still be used, in the job's order, and their guards."""

    names: tuple[str, ...]
    command: Sequence[str]  # starts a guard
    give_up: Callable[[], bool]
    lost_s: float = LOST_S  # for how long a node may be silent
    leased: bool = False  # whether the guards beat from their first answer on
    fenced_at: float = 0.0  # when ranks on nodes that were lost have surely ended, on the guards' clock
    groups: tuple[tuple[str, ...], ...] = ()  # of a heterogeneous job, the nodes of each
    _guards: Guards | None = None

    @property
    def guards(self) -> Guards:
        """The guards, started where there are none."""
        if self._guards is None:
            self._guards = Guards(self.command, self.names, groups=self.groups, lost_s=self.lost_s)
        return self._guards

    def ask(self, request: barrier.Request) -> barrier.Answers:
        """Every node's answer to a question."""
        if self._guards is not None and not self._guards.alive:
            self._anew(self._guards.hosts)
        guards = self.guards
        said, complaint = guards.ask(barrier.text(request), barrier.deadline_s(request), self.give_up)
        if self.leased and said:
            guards.arm()
        return barrier.answers(self.names, said, complaint)

    def reachable(self, names: tuple[str, ...], request: barrier.Request) -> tuple[str, ...]:
        """Which of these nodes answer guards that are started anew."""
        fresh = Guards(self.command, names, groups=self.groups, lost_s=self.lost_s)
        quick = replace(request, check=False, task_script=None, devices=False)
        said, _ = fresh.ask(barrier.text(quick), REACH_S, self.give_up)
        fresh.close(names)
        return tuple(name for name in names if name in said)

    def wipe(self) -> dict[str, Health]:
        """End what is left of an attempt everywhere; the nodes where that is not sure, and what is known of them.

        Where not one node says so, nothing is known of any: then it is the asking that is broken.
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
        """Other guards in the place of those that were lost themselves, on nodes that are there."""
        if self._guards is not None:
            self._anew(self._guards.hosts).arm()

    def give_back(self, names: Sequence[str], dirty: Sequence[str]) -> None:
        """Go on without these nodes. Of the `dirty` ones nobody knows whether ranks still write there."""
        self.names = tuple(name for name in self.names if name not in names)
        guards = self._guards
        if guards is not None and ({*dirty} & {*guards.hosts} or not guards.alive):
            self._anew(self.names, dirty)
        elif guards is not None:
            guards.release(names)

    def _anew(self, names: Sequence[str], dirty: Sequence[str] = ()) -> Guards:
        """Other guards, on these nodes. The old ones may end ranks until `fenced_at`, those of a new attempt too."""
        if self._guards is not None:
            fenced_at = self._guards.close([name for name in self._guards.hosts if name not in dirty])
            self.fenced_at = max(self.fenced_at, fenced_at)
        self._guards = fresh = Guards(self.command, names, groups=self.groups, lost_s=self.lost_s)
        return fresh

    def close(self, dirty: Sequence[str] = ()) -> None:
        """End the guards; on `dirty` nodes, where something of the last attempt may still run, they end that first."""
        if self._guards is not None:
            self._guards.close([name for name in self._guards.hosts if name not in dirty])


def show(answers: barrier.Answers) -> dict[str, Health]:
    """Write what the nodes said into the log; their conditions."""
    if answers.complaint:
        say(f"srun said: {answers.complaint}")
    for name, report in answers.reports.items():
        for verdict in report.items if report else ():
            if verdict.verdict != prechecks.SKIPPED:
                print(prechecks.line(name, verdict))
        if report is None:
            say(f"{name} did not answer")
    sys.stdout.flush()
    return barrier.conditions(answers)


def only(answers: barrier.Answers, names: Sequence[str]) -> barrier.Answers:
    """The answers of these nodes alone."""
    wanted = set(names)
    reports: Mapping[str, prechecks.Report | None] = {
        name: report for name, report in answers.reports.items() if name in wanted
    }
    devices = tuple(line for line in answers.devices if line.partition(" ")[0] in wanted)
    return replace(answers, reports=reports, devices=devices)
