"""The grant's record of each run that ended."""

from dataclasses import replace
from datetime import UTC, datetime

from slurm_plugin.controller.requeue_policy import ONE_LOST, Cancel, Count, Ended, step
from slurm_plugin.records.grant import Grant, Run
from tests import fakes
from tests.unit.controller.requeued import ENDED_RUN, NODES, SETTLE_S, given_job

NOW = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
AT = "2026-03-01T09:30:00"
WHY = "n2: gpu-check: 3 of 4 GPUs"


def runs(ended: Ended = ENDED_RUN, **fields: object) -> tuple[Run, ...]:
    """Return the runs that the next step writes."""
    found = step(ended, given_job(**fields), NODES, [], 0, settle_s=SETTLE_S, now=NOW)  # type: ignore[arg-type]
    assert isinstance(found, Count | Cancel)
    return found.grant.runs


def test_each_run_keeps_its_own_cause() -> None:
    """Number, nodes, time and cause, also of the run after which no restart is left. A second write adds none."""
    first = Run(0, "n[1-2]", AT, WHY)
    assert runs() == (first,)
    assert runs(grant=Grant(0)) == (first,)
    assert runs(grant=Grant(3).with_run(first._replace(why="before"))) == (first,)
    counted = Grant(3, 1, counted=0).with_run(first)
    assert runs(grant=counted, restarts=2) == (first, Run(1, "n[1-2]", AT, WHY))


def test_its_nodes() -> None:
    """Empty if not all are known; their number if the list is long."""
    assert runs(replace(ENDED_RUN, whole=False))[0].nodes == ""
    odd = tuple(f"a{number}b" for number in range(60))
    assert runs(replace(ENDED_RUN, nodes=("n2", *odd)))[0].nodes == "61 nodes"


def test_a_lost_node_beside_a_bad_one() -> None:
    """Both are causes: the lost node may be the batch host, and its ranks may still write."""
    job = given_job(comment="[sp1;retries=3;had=0.3]")
    found = step(ENDED_RUN, job, NODES, [], 0, settle_s=SETTLE_S)
    assert isinstance(found, Count)
    assert found.grant.last == f"{ONE_LOST}; {WHY}"
    down = {**NODES, "n1": fakes.node("n1", "DOWN")}
    found = step(ENDED_RUN, given_job(), down, [], 0, settle_s=SETTLE_S)
    assert isinstance(found, Count)
    assert found.grant.last == f"n1: the node went down; {WHY}"
