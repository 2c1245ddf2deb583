"""After a run: the module's table, one case a row, and that no stream of failures is endless."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.after_run import (
    SETTLE_AFTER_DEATH_S,
    Cancel,
    Count,
    Drop,
    Ended,
    Start,
    Step,
    Unhold,
    Wait,
    is_uncounted,
    step,
)
from slurm_plugin.grant import Grant, written
from slurm_plugin.slurm import ENDED, HELD_BY_LIMIT, Job, Node
from tests import fakes
from tests.unit.requeued import BAD, COUNTED, ENDED_RUN, FINE, NODES, NOT_OURS, SETTLE_S, given_job

AFTER_DEATH = Grant(3, 1, ("n1",), "", "n1: the node went down", 0)
USED_UP = Grant(1, 1, ("n9",), "", "n9: gpu-check", -1)

TABLE: dict[str, tuple[Job | None, dict[str, Node], float, Step]] = {
    "gone": (None, NODES, 0, Drop("the job has ended")),
    **{f"ended: {each}": (given_job(each), NODES, 0, Drop("the job has ended")) for each in sorted(ENDED)},
    "completing": (given_job("COMPLETING"), NODES, 9, Wait()),
    "requeued by Slurm itself, at once": (given_job("EXPEDITING"), NODES, 9, Count(COUNTED, ("n8", "n2"))),
    "requeued by Slurm itself, at once; counted": (
        given_job("EXPEDITING", grant=COUNTED),
        NODES,
        9,
        Drop("it runs again"),
    ),
    "held by the site for its exit code": (
        given_job("SPECIAL_EXIT", reason="job requeued in special exit state", grant=USED_UP),
        NODES,
        9,
        Drop("somebody holds it"),
    ),
    "held by a site without nohold": (
        given_job("REQUEUE_HOLD", reason="launch failed requeued held"),
        NODES,
        9,
        Drop("somebody holds it"),
    ),
    "held by Slurm's limit, not counted": (
        given_job("REQUEUE_HOLD", reason=HELD_BY_LIMIT),
        NODES,
        9,
        Count(COUNTED, ("n8", "n2")),
    ),
    "held by Slurm's limit, counted": (
        given_job("REQUEUE_HOLD", reason=HELD_BY_LIMIT, grant=COUNTED),
        NODES,
        9,
        Unhold(),
    ),
    "held by Slurm's limit, no restart left": (
        given_job("REQUEUE_HOLD", reason=HELD_BY_LIMIT, grant=USED_UP),
        NODES,
        9,
        Cancel(replace(USED_UP, last="no restart left after n2: gpu-check: 3 of 4 GPUs")),
    ),
    "held by Slurm's limit, not by our doing": (given_job("REQUEUE_HOLD", reason=HELD_BY_LIMIT), FINE, 9, NOT_OURS),
    "requeued and held by somebody": (
        given_job("REQUEUE_HOLD", reason="job requeued in held state", grant=COUNTED),
        NODES,
        9,
        Drop("somebody holds it"),
    ),
    "a reason left behind by a resume": (
        given_job(),
        {"n1": FINE["n1"], "n2": fakes.node("n2", "IDLE", reason=BAD)},
        9,
        NOT_OURS,
    ),
    "in a state that is not known": (given_job("UNKNOWN"), NODES, 9, Wait()),
    "completing, without a grant": (given_job("COMPLETING", grant=None), NODES, 9, Wait()),
    "running again, not counted": (given_job("RUNNING"), NODES, 0, Count(COUNTED, ("n8", "n2"))),
    "running again, counted": (given_job("RUNNING", grant=COUNTED), NODES, 0, Drop("it runs again")),
    "running again, not ours": (given_job("RUNNING"), FINE, 0, NOT_OURS),
    "running again, no restart left": (
        given_job("RUNNING", grant=Grant(0)),
        NODES,
        0,
        Cancel(Grant(0, last="no restart left after n2: gpu-check: 3 of 4 GPUs")),
    ),
    "running for the first time": (given_job("RUNNING", restarts=0), NODES, 0, Drop("it runs again")),
    "held by its user": (given_job(reason="JobHeldUser"), NODES, 9, Drop("somebody holds it")),
    "held by an admin": (given_job(reason="JobHeldAdmin"), NODES, 9, Drop("somebody holds it")),
    "held after it was counted": (
        given_job(reason="JobHeldUser", grant=COUNTED),
        NODES,
        9,
        Drop("somebody holds it"),
    ),
    "without a grant": (given_job(grant=None), NODES, 9, Drop("it has no grant")),
    "nobody asked": (given_job(), FINE, 9, NOT_OURS),
    "nothing known of its nodes": (given_job(), {}, 9, NOT_OURS),
    "no restart left": (
        given_job(grant=USED_UP),
        NODES,
        9,
        Cancel(replace(USED_UP, last="no restart left after n2: gpu-check: 3 of 4 GPUs")),
    ),
    "no restart granted": (
        given_job(grant=Grant(0)),
        NODES,
        9,
        Cancel(Grant(0, last="no restart left after n2: gpu-check: 3 of 4 GPUs")),
    ),
    "not counted": (given_job(), NODES, 0, Count(COUNTED, ("n8", "n2"))),
    "counted, just now": (given_job(grant=COUNTED), NODES, SETTLE_S - 0.01, Wait()),
    "counted, long enough ago": (given_job(grant=COUNTED), NODES, SETTLE_S, Start()),
    "counted after a node's death, just now": (
        given_job(grant=AFTER_DEATH),
        NODES,
        SETTLE_AFTER_DEATH_S - 0.01,
        Wait(),
    ),
    "counted after a node's death, long enough ago": (
        given_job(grant=AFTER_DEATH),
        NODES,
        SETTLE_AFTER_DEATH_S,
        Start(),
    ),
    "counted, its node repaired meanwhile": (given_job(grant=COUNTED), FINE, SETTLE_S, Start()),
}


@pytest.mark.parametrize(("job", "nodes", "pending_s", "expected"), TABLE.values(), ids=TABLE.keys())
def test_table(job: Job | None, nodes: dict[str, Node], pending_s: float, expected: Step) -> None:
    """Each row of the table gives its one step, with everything that is written."""
    assert step(ENDED_RUN, job, nodes, ["n8"], pending_s, settle_s=SETTLE_S) == expected


def test_excluded_twice() -> None:
    """A node that is on the job's list already is not written a second time."""
    counted = step(ENDED_RUN, given_job(), NODES, ["n2", "n8"], 0, settle_s=SETTLE_S)
    assert counted == Count(COUNTED, ("n2", "n8"))


def test_asked_without_a_node() -> None:
    """The supervisor may ask to run again and name no node: it counts, and nothing is left out."""
    job = given_job(comment="[sp1;retries=3;run=0]")
    assert step(ENDED_RUN, job, FINE, [], 0, settle_s=SETTLE_S) == Count(
        Grant(3, 1, (), "", "the job asked for it", 0), ()
    )


@pytest.mark.parametrize(
    ("grant", "told", "expected"),
    [
        (Grant(3), 2, Grant(3, 1, ("n2",), "", COUNTED.last, 0, again=2)),
        (Grant(3, again=2), 0, Grant(3, 1, ("n2",), "", COUNTED.last, 0, again=2)),
        (Grant(3), 3, None),
        (Grant(3, again=3), 0, None),
        (Grant(3, 1), 999_999, None),
    ],
)
def test_restarts_in_place_are_taken_off(grant: Grant, told: int, expected: Grant | None) -> None:
    """The larger of the token's and the grant's number counts; where nothing is left the requeue is not granted."""
    job = given_job(grant=grant, comment=f"[sp1;retries=3;again={told}]")
    found = step(ENDED_RUN, job, NODES, [], 0, settle_s=SETTLE_S)
    if expected is None:
        over = replace(grant.told(told), last=f"no restart left after {COUNTED.last}")
        assert found == Cancel(over)
    else:
        assert found == Count(expected, ("n2",))


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (None, False),
        (given_job(), True),
        (given_job("RUNNING"), True),
        (given_job(grant=COUNTED), False),
        (given_job(grant=None), False),
        (given_job("COMPLETED"), False),
        (given_job("RUNNING", restarts=0), False),
    ],
)
def test_is_uncounted(job: Job | None, expected: bool) -> None:
    """Nodes are asked for only where a restart is still to be counted."""
    assert is_uncounted(job) is expected


@given(st.integers(0, 20), st.lists(st.sampled_from(["ours", "ours, runs again unseen", "not ours"]), max_size=60))
def test_failures_without_end(granted: int, requeues: list[str]) -> None:
    """With k restarts granted, a stream of failed prologs ends in Cancel after exactly k Counts.

    However often the worker looks, whatever requeues of Slurm's own come between, and with runs that began before the
    worker looked: those count too.
    """
    job = given_job(grant=Grant(granted), restarts=0)
    counted = 0
    for number, kind in enumerate([*requeues, *["ours"] * (granted + 1)]):
        job = job._replace(state="RUNNING" if kind == "ours, runs again unseen" else "PENDING", restarts=number + 1)
        bad = f"n{number}"
        ended = Ended(7, job.restarts, (bad,))
        node = fakes.node(bad) if kind == "not ours" else fakes.node(bad, "IDLE", "DRAIN", reason=BAD)
        found = step(ended, job, {bad: node}, [], 0, settle_s=SETTLE_S)
        if kind == "not ours":
            assert found == NOT_OURS
        elif isinstance(found, Cancel):
            assert counted == granted
            return
        else:
            assert isinstance(found, Count)
            counted += 1
            assert counted <= granted
            assert found.grant.requeues == counted
            job = job._replace(admin_comment=written(job.admin_comment, found.grant))
            for _ in range(3):  # looking again counts nothing twice
                again = step(ended, job, {bad: node}, [], 0, settle_s=SETTLE_S)
                assert again == (Wait() if job.state == "PENDING" else Drop("it runs again"))
    pytest.fail(f"{counted} restarts of {granted} granted, and no end")
