"""Whatever nodes, users, Slurm and the policy do, the plugin gives a job at most 1 + granted runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slurm_plugin.controller.queue_limits import Policy
from slurm_plugin.controller.requeue_policy import (
    HELD_S,
    Amend,
    Cancel,
    Count,
    Drop,
    Ended,
    Start,
    Step,
    Unhold,
    Wait,
    step,
)
from slurm_plugin.records.grant import NEVER, Grant, parse, written
from slurm_plugin.records.token import MAX_RETRIES, Mark, Token
from slurm_plugin.slurm import HELD_BY_LIMIT, Node, Queueing
from tests import fakes

SETTLE_S = 1.2
HOST = "n1"
CONDITIONS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "fine": (("IDLE",), ""),
    "drained by us for it": (("IDLE", "DRAIN"), "slurm_plugin: gpu-check: x [job 7]"),
    "drained by us for another": (("IDLE", "DRAIN"), "slurm_plugin: gpu-check: x [job 8]"),
    "drained by somebody": (("IDLE", "DRAIN"), "look [job 7]"),
    "down": (("DOWN",), ""),
    "unreadable": (("UNKNOWN",), ""),
}
OURS = ("drained by us for it", "down")


@dataclass(frozen=True)
class End:
    """A run that ends, Slurm's reaction, and what its user wrote meanwhile."""

    node: str
    marked: bool = False
    again: int = 0
    wait_s: int | None = None
    forged: str = ""  # the comment that the user wrote in place of our token; empty: no change
    state: str = "PENDING"
    reason: str = "BeginTime"


ENDS = st.builds(
    End,
    node=st.sampled_from(list(CONDITIONS)),
    marked=st.booleans(),
    again=st.integers(0, 3),
    wait_s=st.none() | st.integers(0, 999_999),
    forged=st.sampled_from(["", "", "", "[sp1;retries=128]", "no token", "[sp1;retries=128;run=", "[sp1;[sp1;"]),
    state=st.sampled_from(["PENDING", "PENDING", "RUNNING", "EXPEDITING", "REQUEUE_HOLD"]),
    reason=st.sampled_from(["BeginTime", "BeginTime", "", HELD_BY_LIMIT, "JobHeldUser"]),
)
DRAINED = End("drained by us for it")
POLICIES = st.builds(Policy, st.integers(0, 999_999), st.integers(0, 10**6))


class Controller:
    """One job under slurmctld and the worker. Each step is applied as the worker does it."""

    def __init__(self, granted: int, policy: Policy, limit_s: int | None) -> None:
        self.job = fakes.job(restarts=0, admin_comment=written("", Grant(granted)))
        self.queue, self.policy = Queueing(limit_s), policy
        self.now = datetime(2026, 3, 1, tzinfo=UTC)
        self.steps: list[Step] = []

    def end(self, what: End) -> None:
        """A run ends, and Slurm requeues the job. The worker runs until it has no more work."""
        self.now += timedelta(hours=7)
        run = self.job.restarts
        asked = Token(3, again=what.again, queue_timeout_s=what.wait_s, mark=Mark(run, (0,)) if what.marked else None)
        fields = {"state": what.state, "reason": what.reason, "restarts": run + 1}
        self.job = self.job._replace(comment=what.forged or str(asked), **fields)
        states, reason = CONDITIONS[what.node]
        nodes = {HOST: fakes.node(HOST, *states, reason=reason)}
        for look in range(8):
            found = self._look(nodes, look * HELD_S / 4)
            self.steps.append(found)
            if isinstance(found, Drop | Start | Cancel):
                return
            self._apply(found)
        pytest.fail(f"the worker never comes to an end: {self.steps[-8:]}")

    def _look(self, nodes: Mapping[str, Node], pending_s: float) -> Step:
        ended = Ended(7, self.job.restarts, (HOST,))
        return step(
            ended, self.job, nodes, [], pending_s, settle_s=SETTLE_S, queue=self.queue, policy=self.policy, now=self.now
        )

    def _apply(self, found: Step) -> None:
        if isinstance(found, Count | Amend):
            self.job = self.job._replace(admin_comment=written(self.job.admin_comment, found.grant))
            if "Deadline" in found.fields:
                self.queue = self.queue._replace(deadline=_time(found.fields["Deadline"]))
            self.queue = self.queue._replace(nice=int(found.fields.get("Nice", self.queue.nice)))
        if isinstance(found, Unhold):
            self.job = self.job._replace(reason="BeginTime")

    def nice_of_start(self) -> None:
        """The Nice of the last Start."""
        last = self.steps[-1]
        if isinstance(last, Start):
            self.queue = self.queue._replace(nice=int(last.fields.get("Nice", self.queue.nice)))

    @property
    def grant(self) -> Grant:
        """The grant in the job."""
        found = parse(self.job.admin_comment)
        assert found is not None
        return found


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@settings(deadline=None)
@given(st.integers(0, 6), POLICIES, st.none() | st.integers(60, 10**6), st.lists(ENDS, max_size=40))
@example(3, Policy(0, 1), None, [DRAINED, End("fine", marked=True, state="EXPEDITING"), DRAINED])
def test_runs_are_bounded(granted: int, policy: Policy, limit_s: int | None, ends: list[End]) -> None:
    """At most `granted` requeues are counted and started, and none after Cancel. Each later fault cancels again.

    Whatever happens in between, the plugin's Nice is never lower than the job's own minus the site's number, and the
    plugin sets no deadline in the past.
    """
    controller = Controller(granted, policy, limit_s)
    for what in ends:
        controller.end(what)
        controller.nice_of_start()
        if isinstance(controller.steps[-1], Cancel):
            break
        assert -policy.nice <= controller.queue.nice <= 0
        if controller.grant.deadline:
            assert controller.now < _time(controller.grant.deadline) < NEVER or what.state == "RUNNING"
    counts = [each for each in controller.steps if isinstance(each, Count)]
    starts = [each for each in controller.steps if isinstance(each, Start)]
    assert len(starts) <= len(counts) <= granted
    assert len([each for each in controller.steps if isinstance(each, Unhold)]) <= len(counts)
    if not isinstance(controller.steps[-1] if controller.steps else None, Cancel):
        for _ in range(granted - len(counts)):
            controller.end(End("down"))
        controller.end(End("down"))
        assert isinstance(controller.steps[-1], Cancel)


def test_every_run_meets_a_bad_node() -> None:
    """The worst case, with each policy: exactly 1 + granted runs, then the job is cancelled."""
    for policy in [Policy(), Policy(1800, 1000), Policy(1, 10**6)]:
        for node in OURS:
            for granted in [0, 1, 3, MAX_RETRIES]:
                controller = Controller(granted, policy, 3600)
                while not (controller.steps and isinstance(controller.steps[-1], Cancel)):
                    assert len(controller.steps) <= 4 * (granted + 1), policy
                    controller.end(End(node))
                assert sum(isinstance(each, Start) for each in controller.steps) == granted, policy
                assert controller.job.restarts == granted + 1, policy  # the last of these never started


def test_restarts_in_place_use_up_the_same_budget() -> None:
    """After `granted` restarts in place no requeue is left."""
    for granted in [0, 1, 3]:
        controller = Controller(granted, Policy(1800, 1000), None)
        controller.end(End("down", again=granted))
        assert isinstance(controller.steps[-1], Cancel), granted
        assert not any(isinstance(each, Count | Start | Wait) for each in controller.steps), granted
