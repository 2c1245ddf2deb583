"""After a run: the module's table, one case a row, whose requeue it was, and that no stream of failures is endless."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.after_run import (
    SETTLE_AFTER_DEATH_S,
    Amend,
    Cancel,
    Count,
    Drop,
    Ended,
    Start,
    Step,
    Unhold,
    Wait,
    faults,
    is_uncounted,
    step,
)
from slurm_plugin.grant import Grant, written
from slurm_plugin.queueing import Policy
from slurm_plugin.slurm import ENDED, HELD_BY_LIMIT, Job, Node, Queueing
from tests import fakes

SETTLE_S = 1.2
ENDED_RUN = Ended(7, 1, ("n1", "n2"))
BAD = "slurm_plugin: gpu-check: 3 of 4 GPUs [job 7]"
NODES = {"n1": fakes.node("n1"), "n2": fakes.node("n2", "IDLE", "DRAIN", reason=BAD)}
FINE = {"n1": fakes.node("n1"), "n2": fakes.node("n2")}


THREE = Grant(3)


def given_job(state: str = "PENDING", *, grant: Grant | None = THREE, **fields: object) -> Job:
    """A job that was requeued once, with this grant."""
    return fakes.job(state=state, admin_comment="" if grant is None else written("", grant), **fields)


COUNTED = Grant(3, 1, ("n2",), "", "n2: gpu-check: 3 of 4 GPUs", 0)
AFTER_DEATH = Grant(3, 1, ("n1",), "", "n1: the node went down", 0)
USED_UP = Grant(1, 1, ("n9",), "", "n9: gpu-check", -1)
NOT_OURS = Drop("this requeue is not ours")

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


NOW = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)
WAITS = Policy(queue_timeout_s=1800, nice=1000)
# A run after a restart of ours, which had set a deadline and a Nice: the requeue that follows is the second.
AFTER_ONE = Grant(3, 1, ("n9",), "2026-02-01T10:30:00", "n9: x", 0, nice=(0, -1000))
STALE = Queueing(3600, 0, datetime(2026, 2, 1, 10, 30, tzinfo=UTC), -1000)
GONE = {"Deadline": "2099-12-31T00:00:00"}
UNBOUND, UNPLACED = replace(AFTER_ONE, deadline=""), replace(AFTER_ONE, deadline="", nice=())
MARKED = "[sp1;retries=3;run=1;x=0]"
BOTH = Grant(3, 2, ("n9", "n2"), "2026-03-01T10:30:00", "n2: gpu-check: 3 of 4 GPUs", 1, nice=(0, -1000))
BY_MARK = Grant(
    3, 2, ("n9", "n1"), "2026-03-01T10:30:00", "n1: failed this job's own check", 1, kept=("n1",), nice=(0, 0)
)
WAIT = {"Deadline": "2026-03-01T10:30:00", "TimeLimit": "60"}
QUEUE: dict[str, tuple[dict[str, object], dict[str, Node], Step]] = {
    "completing, a deadline of ours": ({"state": "COMPLETING"}, NODES, Amend(UNBOUND, GONE)),
    "completing, its first run after ours": ({"state": "COMPLETING", "restarts": 1}, NODES, Wait()),
    "held": ({"reason": "JobHeldAdmin"}, NODES, Amend(UNBOUND, GONE)),
    "not ours": ({}, FINE, Amend(UNPLACED, GONE | {"Nice": "0"})),
    "not ours, held by Slurm's limit: a Nice would let it go": ({"reason": HELD_BY_LIMIT}, FINE, Amend(UNBOUND, GONE)),
    "not ours, and it runs again: nothing of it can be changed": ({"state": "RUNNING"}, FINE, NOT_OURS),
    "ours by root's verdict": ({}, NODES, Count(BOTH, ("n2",), WAIT)),
    "ours by a node's death": (
        {},
        {"n1": fakes.node("n1", "DOWN")},
        Count(replace(BOTH, excluded=("n9", "n1"), last="n1: the node went down"), ("n1",), WAIT),
    ),
    "ours by the job's own word alone": ({"comment": MARKED}, FINE, Count(BY_MARK, ("n1",), WAIT)),
    "its own wait": (
        {"comment": "[sp1;retries=3;q=60]"},
        NODES,
        Count(
            replace(BOTH, deadline="2026-03-01T10:01:00"),
            ("n2",),
            {"Deadline": "2026-03-01T10:01:00", "TimeLimit": "60"},
        ),
    ),
    "its own wait is without an end": (
        {"comment": "[sp1;retries=3;q=0]"},
        NODES,
        Count(replace(BOTH, deadline=""), ("n2",), GONE),
    ),
    "runs again, unseen": (
        {"state": "RUNNING"},
        NODES,
        Count(replace(AFTER_ONE, requeues=2, counted=1, excluded=("n9", "n2"), last=BOTH.last), ("n2",)),
    ),
}


@pytest.mark.parametrize(("fields", "nodes", "expected"), QUEUE.values(), ids=QUEUE.keys())
def test_its_place_in_the_queue(fields: dict[str, object], nodes: dict[str, Node], expected: Step) -> None:
    """What is set with a restart of ours, and taken back with any other; a user's word alone puts no job first."""
    job = given_job(**{"grant": AFTER_ONE, "restarts": 2, **fields})  # type: ignore[arg-type]
    again = {"settle_s": SETTLE_S, "policy": WAITS, "now": NOW}
    found = step(ENDED_RUN, job, nodes, [], 0, queue=STALE, **again)  # type: ignore[arg-type]
    assert found == expected
    assert step(ENDED_RUN, job, nodes, [], 0, queue=None, **again) == Wait()  # type: ignore[arg-type]
    if isinstance(found, Amend):  # once: the next look finds nothing to take back
        job = job._replace(admin_comment=written("", found.grant))
        assert not isinstance(step(ENDED_RUN, job, nodes, [], 0, queue=STALE, **again), Amend | Count)  # type: ignore[arg-type]


def test_the_nice_comes_with_the_start() -> None:
    """Not before: a job that Slurm holds would be let go by it."""
    job = given_job(grant=replace(COUNTED, nice=(0, -1000)))
    assert step(ENDED_RUN, job, NODES, [], SETTLE_S, settle_s=SETTLE_S) == Start({"Nice": "-1000"})


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


FAULTS = {
    "our drain for this job": ({"n2": NODES["n2"]}, "", {"n2": "gpu-check: 3 of 4 GPUs"}),
    "our drain for another job": (
        {"n2": fakes.node("n2", "DRAIN", reason=BAD.replace("7]", "77]"))},
        "",
        None,
    ),
    "our drain for several jobs, this one among them": (
        {"n2": fakes.node("n2", "DRAIN", reason=f"{BAD} [job 9]")},
        "",
        {"n2": "gpu-check: 3 of 4 GPUs"},
    ),
    "an administrator's drain that names the job": (
        {"n2": fakes.node("n2", "DRAIN", reason="looked into [job 7]")},
        "",
        None,
    ),
    "a node that went down": ({"n1": fakes.node("n1", "DOWN", "NOT_RESPONDING")}, "", {"n1": "the node went down"}),
    "an unreadable node": ({"n1": fakes.node("n1", "UNKNOWN")}, "", None),
    "a node that was not in the run": ({"n9": NODES["n2"]._replace(name="n9")}, "", None),
    "the mark of this run": (FINE, "[sp1;retries=3;run=0;x=1]", {"n2": "failed this job's own check"}),
    "the mark of another run": (FINE, "[sp1;retries=3;run=1;x=1]", None),
    "the mark of this run, forged far beyond its nodes": (FINE, "[sp1;retries=3;run=0;x=2,999999]", {}),
    "a mark in a broken token": (FINE, "[sp1;retries=3;run=0;x=1;x=0]", None),
    "a mark and a drain on the same node": (NODES, "[sp1;retries=3;run=0;x=1]", {"n2": "gpu-check: 3 of 4 GPUs"}),
    "a mark and a drain on two nodes": (
        NODES,
        "[sp1;retries=3;run=0;x=0]",
        {"n2": "gpu-check: 3 of 4 GPUs", "n1": "failed this job's own check"},
    ),
}


@pytest.mark.parametrize(("nodes", "comment", "expected"), FAULTS.values(), ids=FAULTS.keys())
def test_faults(nodes: dict[str, Node], comment: str, expected: dict[str, str] | None) -> None:
    """Only a drain of ours that names the job, a node that went down, or this run's mark speak for a requeue."""
    assert faults(ENDED_RUN, given_job(comment=comment), nodes) == expected


def test_a_run_that_ended_with_fewer_nodes_has_lost_one() -> None:
    """Slurm took it out of the job, and nobody could mark the job then; the word of another run counts for nothing."""
    had = "[sp1;retries=3;had={}]".format
    found = step(ENDED_RUN, given_job(comment=had("0.3")), FINE, (), 9, settle_s=SETTLE_S)
    assert isinstance(found, Count)
    assert (found.grant.last, found.excluded) == ("a node of it: the node went down", ())
    for other in ("0.2", "1.3", "7.9"):
        assert step(ENDED_RUN, given_job(comment=had(other)), FINE, (), 9, settle_s=SETTLE_S) == NOT_OURS


def test_a_node_is_left_out_for_as_long_as_it_is_out() -> None:
    """At the next restart one that is in service again is used again, unless it failed this job's own check."""
    out = Grant(9, 2, ("n5", "n6", "n7"), "", "x", -1, kept=("n6",))
    nodes = {**NODES, "n5": fakes.node("n5"), "n6": fakes.node("n6"), "n7": fakes.node("n7", "IDLE", "DRAIN")}
    found = step(ENDED_RUN, given_job(grant=out), nodes, ("n5", "n6", "n7", "n8"), 9, settle_s=SETTLE_S)
    assert isinstance(found, Count)
    assert found.grant.excluded == ("n6", "n7", "n2")
    assert found.excluded == ("n6", "n7", "n8", "n2")
    unknown = step(ENDED_RUN, given_job(grant=out), NODES, ("n5", "n6"), 9, settle_s=SETTLE_S)
    assert isinstance(unknown, Count)
    assert unknown.excluded == ("n5", "n6", "n2")


def test_what_failed_a_jobs_own_check_stays_out() -> None:
    """Nobody drained it, so nothing says when it is fine again."""
    job = given_job(comment="[sp1;retries=3;run=0;x=0]")
    found = step(ENDED_RUN, job, FINE, (), 9, settle_s=SETTLE_S)
    assert isinstance(found, Count)
    assert (found.grant.excluded, found.grant.kept) == (("n1",), ("n1",))


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
