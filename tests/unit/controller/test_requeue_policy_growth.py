"""After a run: a requeue for more nodes uses no restart, once an hour, and gives no place in the queue."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from slurm_plugin.controller.queue_limits import Policy
from slurm_plugin.controller.requeue_policy import Cancel, Count, Start, Step, ends_reservation, step
from slurm_plugin.records.grant import GREW, Grant, Run
from slurm_plugin.slurm import Node, Queueing
from tests import fakes
from tests.unit.controller.requeued import ENDED_RUN, FINE, NODES, SETTLE_S, given_job

NOW = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)
ASKS = "[sp1;retries=3;q=60;run=0;grow=1]"
RANGE = Grant(3, 1, tasks=8)
GROWN = Grant(
    3, 1, (), "", GREW, 0, tasks=8, grown="2026-03-01T09:00:00", runs=(Run(0, "n[1-2]", "2026-03-01T09:00:00", GREW),)
)  # fmt: skip
WAITS = Policy(queue_timeout_s=1800, nice=1000)


def after(grant: Grant, comment: str = ASKS, nodes: dict[str, Node] = FINE, **fields: object) -> Step:
    """Return the step after a run that asked for more nodes."""
    job = given_job(grant=grant, comment=comment, **fields)
    return step(ENDED_RUN, job, nodes, (), 9, settle_s=SETTLE_S, queue=Queueing(3600), policy=WAITS, now=NOW)


def test_a_growth_uses_no_restart() -> None:
    """Not even the last one. It has no lower Nice, no deadline, and no nodes reserved. Then it starts."""
    count = Count(GROWN, (), {"NumTasks": "8"})
    assert after(RANGE) == count
    assert ends_reservation(count)
    assert after(replace(RANGE, granted=1)) == Count(replace(GROWN, granted=1), (), {"NumTasks": "8"})
    assert after(GROWN) == Start()


def test_once_an_hour() -> None:
    """An earlier one uses a restart, as any other request of the job. So does one whose last time is unreadable."""
    for ago, free in ((0, False), (3599, False), (3600, True), (-86400, False)):
        grown = (NOW - timedelta(seconds=ago)).strftime("%Y-%m-%dT%H:%M:%S")
        found = after(replace(RANGE, grown=grown))
        assert isinstance(found, Count)
        assert (found.grant.requeues, found.grant.grown == GROWN.grown) == ((1, True) if free else (2, ago == 0))
    found = after(replace(RANGE, grown="soon"))
    assert isinstance(found, Count)
    assert found.grant.requeues == 2
    assert isinstance(after(replace(RANGE, granted=1, grown=GROWN.grown)), Cancel)


def test_only_a_growth() -> None:
    """A job of a fixed size cannot grow. A run with a bad node, or of another number, had a fault."""
    for found in (
        after(replace(RANGE, tasks=0)),
        after(RANGE, nodes=NODES),
        after(RANGE, nodes={"n1": fakes.node("n1", "DOWN")}),
        after(RANGE, "[sp1;retries=3;run=0;x=1;grow=1]"),
        after(RANGE, "[sp1;retries=3;run=0;had=0.3;grow=1]"),
        after(RANGE, "[sp1;retries=3;run=0;grow=2]"),
    ):
        assert isinstance(found, Count)
        assert found.grant.requeues == 2
        assert not found.grant.grown
