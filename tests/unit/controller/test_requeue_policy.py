"""After a run: one case for each row of the module's table, and no endless chain of restarts."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.controller.requeue_policy import (
    HELD_S,
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
from slurm_plugin.records.grant import Grant, written
from slurm_plugin.slurm import ENDED, HELD_BY_LIMIT, Job, Node
from tests import fakes
from tests.unit.controller.requeued import BAD, COUNTED, ENDED_RUN, FINE, NODES, NOT_OURS, SETTLE_S, bare, given_job

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
        Drop("it is held"),
    ),
    "held by a site without nohold": (
        given_job("REQUEUE_HOLD", reason="launch failed requeued held"),
        NODES,
        9,
        Count(COUNTED, ("n8", "n2")),
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
        HELD_S,
        Drop("it is held"),
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
    "held by its user": (given_job(reason="JobHeldUser"), NODES, 9, Count(COUNTED, ("n8", "n2"))),
    "held by its user, no restart left": (
        given_job(reason="JobHeldUser", grant=USED_UP),
        NODES,
        9,
        Drop("it is held"),
    ),
    "held by its user, this requeue is not ours": (given_job(reason="JobHeldUser"), FINE, 9, NOT_OURS),
    "held by an admin": (given_job(reason="JobHeldAdmin"), NODES, 9, Count(COUNTED, ("n8", "n2"))),
    "held after it was counted": (given_job(reason="JobHeldUser", grant=COUNTED), NODES, HELD_S - 0.01, Wait()),
    "held after it was counted, for long": (
        given_job(reason="JobHeldUser", grant=COUNTED),
        NODES,
        HELD_S,
        Drop("it is held"),
    ),
    "released after it was counted": (given_job(grant=COUNTED), NODES, HELD_S - 0.01, Start()),
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


def test_table() -> None:
    """Each row of the table gives its step, with all that is written."""
    for what, (job, nodes, pending_s, expected) in TABLE.items():
        assert bare(step(ENDED_RUN, job, nodes, ["n8"], pending_s, settle_s=SETTLE_S)) == expected, what


def test_excluded_twice() -> None:
    """A node that is already on the job's list is not added again."""
    counted = step(ENDED_RUN, given_job(), NODES, ["n2", "n8"], 0, settle_s=SETTLE_S)
    assert bare(counted) == Count(COUNTED, ("n2", "n8"))


def test_asked_without_a_node() -> None:
    """The supervisor may request a requeue without a node: it counts, and excludes none."""
    job = given_job(comment="[sp1;retries=3;run=0]")
    assert bare(step(ENDED_RUN, job, FINE, [], 0, settle_s=SETTLE_S)) == Count(
        Grant(3, 1, (), "", "the job asked for it", 0), ()
    )


def test_restarts_in_place_are_taken_off() -> None:
    """The larger number of token and grant counts. Without restarts left the requeue is not granted."""
    cases = [
        (Grant(3), 2, Grant(3, 1, ("n2",), "", COUNTED.last, 0, again=2)),
        (Grant(3, again=2), 0, Grant(3, 1, ("n2",), "", COUNTED.last, 0, again=2)),
        (Grant(3), 3, None),
        (Grant(3, again=3), 0, None),
        (Grant(3, 1), 999_999, None),
    ]
    for grant, told, expected in cases:
        job = given_job(grant=grant, comment=f"[sp1;retries=3;again={told}]")
        found = bare(step(ENDED_RUN, job, NODES, [], 0, settle_s=SETTLE_S))
        if expected is None:
            over = replace(grant.with_restarts(told), last=f"no restart left after {COUNTED.last}")
            assert found == Cancel(over), grant
        else:
            assert found == Count(expected, ("n2",)), grant


def test_is_uncounted() -> None:
    """The worker asks for nodes only while a restart is not counted."""
    cases = [
        (None, False),
        (given_job(), True),
        (given_job("RUNNING"), True),
        (given_job(grant=COUNTED), False),
        (given_job(grant=None), False),
        (given_job("COMPLETED"), False),
        (given_job("RUNNING", restarts=0), False),
    ]
    for job, expected in cases:
        assert is_uncounted(job) is expected, job


@given(st.integers(0, 20), st.lists(st.sampled_from(["ours", "ours, runs again unseen", "not ours"]), max_size=60))
def test_failures_without_end(granted: int, requeues: list[str]) -> None:
    """With k granted restarts, a chain of failed prologs ends in Cancel after exactly k Counts.

    This holds however often the worker checks, with requeues by Slurm in between, and with runs that began before the
    worker saw them: those count, too.
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
            for _ in range(3):  # a second check counts nothing twice
                again = step(ended, job, {bad: node}, [], 0, settle_s=SETTLE_S)
                assert again == (Wait() if job.state == "PENDING" else Drop("it runs again"))
    pytest.fail(f"{counted} restarts of {granted} granted, and no end")
