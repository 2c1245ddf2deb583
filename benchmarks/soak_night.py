"""The scenario of benchmarks/soak.py --night: several jobs at once, and random faults, one after the other.

Afterwards every job's state is explained by its own exit, its user, or its restarts; no attempt wrote after the next
had begun; and every node that nothing has broken is idle.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from benchmarks.soak_scenarios import NODES, RETRIES, Round
from slurm_plugin.sandbox import Sandbox
from tests.cluster import controller, jobs, training
from tests.cluster.jobs import Job
from tests.waiting import until

SIZES: Final = (2, 2, 1)  # the nodes of the jobs: together all nodes of the sandbox
FAULTS: Final = ("gpu-missing", "network-cut", "node-dead")
OWN_FAILURE: Final = 7
MOST_EVENTS, BETWEEN_S = 6, 8.0


@dataclass(slots=True)
class Night:
    """One round: its jobs, and what was done to each of them."""

    trial: Round
    jobs: Sequence[Job]
    cancelled: set[int] = field(default_factory=set)
    failed: set[int] = field(default_factory=set)  # jobs whose program was told to fail

    def breaks(self) -> str:
        """Break a node that is not broken; heal one if most are."""
        box = self.trial.box
        free = sorted(set(box.states()) - self.trial.broken)
        if len(self.trial.broken) > NODES // 2:
            return self.heals()
        node, fault = self.trial.random.choice(free), self.trial.random.choice(FAULTS)
        self.trial.broken.add(node)
        box.break_node(node, fault)
        return f"{node} {fault}"

    def heals(self) -> str:
        """Heal a node, as its admin would, and put it back into service."""
        broken = [node for node in sorted(self.trial.broken) if faulty(self.trial.box, node)]
        if not broken:
            return ""
        node = self.trial.random.choice(broken)
        self.trial.box.heal_node(node, resume=True)
        return f"{node} healed"

    def restarts_controller(self) -> str:
        """Stop slurmctld for some seconds."""
        with controller.away(self.trial.box):
            self.trial.wait(5.0)
        return "slurmctld away"

    def cancels(self) -> str:
        """Cancel a job."""
        job = self.trial.random.choice(self.jobs)
        self.cancelled.add(job.id)
        self.trial.box.run(["scancel", str(job.id)])
        return f"{job.id} cancelled"

    def fails(self) -> str:
        """Let a program fail by itself."""
        job = self.trial.random.choice(self.jobs)
        self.failed.add(job.id)
        (job.directory / f"fail.{OWN_FAILURE}").touch()
        return f"{job.id} fails"


# What happens -> its weight.
EVENTS: Final[Mapping[Callable[[Night], str], int]] = {
    Night.breaks: 5, Night.heals: 2, Night.restarts_controller: 1, Night.cancels: 1, Night.fails: 1,
}  # fmt: skip


def faulty(box: Sandbox, node: str) -> bool:
    """Return whether a node has a fault, or its machine is dead."""
    found = next(each for each in box.status().machines if each.name == node)
    return bool(found.faults) or not found.daemon_alive


def explained(state: str, code: str, *, left: int, cancelled: bool, failed: bool) -> bool:
    """Return whether a job's end is explained: by its program's exit, its user, or its restarts, of which `left`."""
    return (
        (state == "COMPLETED" and code == "0:0")
        or (state == "CANCELLED" and cancelled)
        or (state == "FAILED" and failed and code == f"{OWN_FAILURE}:0")
        or (state in ("FAILED", "CANCELLED", "NODE_FAIL") and left == 0)
    )


def night(trial: Round) -> None:
    """Jobs run on all nodes, while nodes break and are healed, programs fail, and users and admins act."""
    box = trial.box
    started = [
        training.submit(box, f"{trial.name}-{number}", nodes=nodes, retries=RETRIES)
        for number, nodes in enumerate(SIZES)
    ]
    trial.job = started[0]  # its log is shown if the round goes wrong
    for job, nodes in zip(started, SIZES, strict=True):
        training.until_runs(job, 0, nodes)
    found, happened = Night(trial, started), []
    for _ in range(trial.random.randint(2, MOST_EVENTS)):
        event = trial.random.choices([*EVENTS], [*EVENTS.values()])[0]
        happened.append(event(found))
        trial.wait(BETWEEN_S)
    trial.note = f": {', '.join(filter(None, happened))}"
    drained = set(jobs.reasons(box))
    if not drained <= trial.broken:
        raise AssertionError(f"drained {sorted(drained)}, broken {sorted(trial.broken)}{trial.note}")
    for node in sorted(trial.broken):
        if faulty(box, node):
            box.heal_node(node)
    until(lambda: _resumed(box, trial.broken), lambda: f"the broken nodes in service: {box.states()}{trial.note}")
    time.sleep(3)  # ranks on a healed node must not write any more
    for job in started:
        trial.job = job
        (job.directory / "stop").touch()
        state, code = job.end(), job.exit_code
        words: dict[str, Any] = {
            "left": job.grant.left,
            "cancelled": job.id in found.cancelled,
            "failed": job.id in found.failed,
        }
        if not explained(state, code, **words):
            raise AssertionError(f"job {job.id} is {state} with {code}, {words}{trial.note}")
        trial.holds()
    until(lambda: set(box.states().values()) == {"idle"}, lambda: f"idle nodes: {box.states()}{trial.note}")


def _resumed(box: Sandbox, broken: set[str]) -> bool:
    """Resume the nodes that were broken, as their admin would. Return whether all are in service."""
    states = box.states()
    out = [node for node in broken if states.get(node) not in ("idle", "allocated", "mixed", "completing")]
    for node in out:
        box.run(["scontrol", "update", f"nodename={node}", "state=resume"], user="root", check=False)
    return not out
