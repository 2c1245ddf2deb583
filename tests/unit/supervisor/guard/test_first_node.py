"""A job whose batch host is gone: the remaining guards requeue it when Slurm agrees."""

import pytest

from slurm_plugin.records import grant
from slurm_plugin.slurm import Job, Node, SlurmAwayError, SlurmError
from slurm_plugin.supervisor.guard import first_node
from slurm_plugin.supervisor.guard.first_node import FIRST_NODE_CHECK_S, WATCHERS_APART_S, requeue_orphan
from slurm_plugin.supervisor.requeue.by_owner import Plan
from tests import fake_slurm
from tests.fake_slurm import FakeClock
from tests.fakes import job, node

GRANT = grant.written("", grant.Grant(granted=3))
RUNNING = job(7, state="RUNNING", nodes="n[1-3]", restarts=1, comment="[sp1;retries=3;ib=auto]", admin_comment=GRANT)
WITHOUT = RUNNING._replace(nodes="n[2-3]")


class FakeSlurm(fake_slurm.FakeSlurm):
    """Answers about the job in order, and only records changes."""

    def __init__(self, *answers: Job | BaseException, first: Node | None = None) -> None:
        super().__init__(*answers)
        self.known_nodes = {"n1": first or node("n1", "ALLOCATED")}

    def update_job(self, job_id: int, **fields: str) -> None:
        self._change("update_job", job_id, fields)

    def requeue(self, job_id: int) -> None:
        self._change("requeue", job_id)

    def cancel(self, job_id: int) -> None:
        self._change("cancel", job_id)


def looked(door: FakeSlurm, index: int = 0, retries: int = 0) -> tuple[bool, list[float]]:
    """Return whether the job was requeued, and the pauses before that."""
    clock = FakeClock()
    return requeue_orphan(7, 1, "n1", index, door, plan=Plan(retries), pause=clock.sleep), clock.pauses


def marked(mark: str) -> list[tuple[object, ...]]:
    """Return the changes that requeue the job."""
    return [("update_job", 7, {"Comment": f"[sp1;retries=3;ib=auto;run=1{mark}]"}), ("requeue", 7)]


def test_the_first_node_was_taken_out() -> None:
    """Slurm has noticed its death: the job has no script any more."""
    door = FakeSlurm(WITHOUT)
    assert looked(door) == (True, [0.0])
    assert door.changes == marked("")


def test_the_first_node_is_down() -> None:
    """And still in the job: it is excluded."""
    door = FakeSlurm(RUNNING, first=node("n1", "DOWN", "NOT_RESPONDING"))
    assert looked(door)[0]
    assert door.changes == marked(";x=0")


@pytest.mark.parametrize(
    ("retries", "changes"),
    [
        (2, [("requeue", 7), ("update_job", 7, {"ExcNodeList": "n[9,1]", "StartTime": "now+30"})]),
        (1, [("cancel", 7)]),  # else it would run without its script until its time limit
    ],
)
def test_a_site_that_grants_nothing(retries: int, changes: list[tuple[object, ...]]) -> None:
    """The guard requeues the job as its owner, if a restart is left: the earlier run left no record, so it counts.

    The site's own job_submit.lua may have replaced the comment.
    """
    for comment in (f"[sp1;retries={retries};ib=auto]", "the site's"):
        door = FakeSlurm(WITHOUT._replace(admin_comment="", comment=comment, excluded="n9"))
        assert looked(door, retries=retries) == (True, [0.0])
        assert door.changes == changes


@pytest.mark.parametrize(
    ("place", "ending", "state", "restarts", "changed"),
    [
        (1, True, "COMPLETING", 2, True),
        (1, True, "PENDING", 2, True),
        (1, False, "COMPLETING", 2, True),
        (2, True, "COMPLETING", 2, False),  # two would wait for each other, and the job stay COMPLETING
        (1, True, "COMPLETING", 1, False),  # a user has cancelled it
        (1, True, "RUNNING", 2, False),
    ],
)
def test_a_job_that_slurm_has_requeued(place: int, *, ending: bool, state: str, restarts: int, changed: bool) -> None:
    """Without --no-kill Slurm does that when it has noticed the death. One guard lets the job start soon."""
    door = FakeSlurm(RUNNING._replace(admin_comment="", state=state, restarts=restarts, nodes="n2"))
    plan = Plan(retries=1, no_kill=False)
    assert requeue_orphan(7, 1, "n1", place, door, plan=plan, ending=ending, pause=lambda _: False) is changed
    start = ("update_job", 7, {"ExcNodeList": "n1", "StartTime": "now+30"})
    assert door.changes == ([start] if changed else [])


def test_a_job_that_has_lost_all_its_nodes() -> None:
    """Nothing of it is left to wait for."""
    assert looked(FakeSlurm(RUNNING._replace(nodes="")))[0]


def test_slurm_is_waited_for() -> None:
    """While the node is in the job and up, our own node may be cut off. Watchers check one after the other."""
    door = FakeSlurm(RUNNING, SlurmAwayError("away"), SlurmError("refused"), RUNNING, WITHOUT)
    assert looked(door, index=2) == (True, [2 * WATCHERS_APART_S, *[FIRST_NODE_CHECK_S] * 4])
    assert door.changes == marked("")


def test_a_node_that_slurm_does_not_know() -> None:
    """It is unknown, and nothing is done."""
    door = FakeSlurm(RUNNING, job(7, state="COMPLETING"))
    door.known_nodes = {}
    assert looked(door) == (False, [0.0, FIRST_NODE_CHECK_S])
    assert door.changes == []


def test_nothing_is_left_to_do() -> None:
    """Slurm, the supervisor or another watcher has ended this run."""
    for found in [
        job(7, state="COMPLETING"),
        job(7, state="PENDING", restarts=2),
        RUNNING._replace(restarts=2, nodes="n[2-4]"),
    ]:
        door = FakeSlurm(found)
        assert looked(door) == (False, [0.0]), found
        assert door.changes == [], found


def test_a_requeue_that_is_refused() -> None:
    """It is requested again."""
    door = FakeSlurm(WITHOUT)
    door.refusals["requeue", 7] = 1
    assert looked(door) == (True, [0.0, FIRST_NODE_CHECK_S])


def test_a_comment_without_a_token() -> None:
    """A job without its script is requeued nevertheless: its down node proves the fault."""
    door = FakeSlurm(WITHOUT._replace(comment="edited"))
    assert looked(door) == (True, [0.0])
    assert door.changes == [("requeue", 7)]


def test_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A healthy supervisor goes on. The guard that lost it does not check forever."""
    monkeypatch.setattr(first_node, "FIRST_NODE_CHECKS", 3)
    assert looked(FakeSlurm(RUNNING)) == (False, [0.0, FIRST_NODE_CHECK_S, FIRST_NODE_CHECK_S, FIRST_NODE_CHECK_S])
