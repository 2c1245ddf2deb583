"""A job whose batch host is gone: the guards that are left have it requeued, once Slurm agrees."""

import pytest

from slurm_plugin.job import orphan
from slurm_plugin.job.orphan import APART_S, LOOK_S, look_after
from slurm_plugin.slurm import Job, Node, SlurmAwayError, SlurmError
from tests import fake_slurm
from tests.fake_slurm import FakeClock
from tests.fakes import job, node

RUNNING = job(7, state="RUNNING", nodes="n[1-3]", restarts=1, comment="[sp1;retries=3;ib=auto]")
WITHOUT = RUNNING._replace(nodes="n[2-3]")


class FakeSlurm(fake_slurm.FakeSlurm):
    """Answers about the job in order; changes are only remembered."""

    def __init__(self, *answers: Job | BaseException, first: Node | None = None) -> None:
        super().__init__(*answers)
        self.known_nodes = {"n1": first or node("n1", "ALLOCATED")}

    def update_job(self, job_id: int, **fields: str) -> None:
        self._change("update_job", job_id, fields)

    def requeue(self, job_id: int) -> None:
        self._change("requeue", job_id)


def looked(door: FakeSlurm, index: int = 0) -> tuple[bool, list[float]]:
    """Whether the job was put back, and the pauses before."""
    clock = FakeClock()
    return look_after(7, 1, "n1", index, door, sleep=clock.sleep), clock.pauses


def marked(mark: str) -> list[tuple[object, ...]]:
    """The changes that put the job back."""
    return [("update_job", 7, {"Comment": f"[sp1;retries=3;ib=auto;run=1{mark}]"}), ("requeue", 7)]


def test_the_first_node_was_taken_out() -> None:
    """Slurm has seen its death: the job has no script any more."""
    door = FakeSlurm(WITHOUT)
    assert looked(door) == (True, [0.0])
    assert door.changes == marked("")


def test_the_first_node_is_down() -> None:
    """And still in the job: it is left out."""
    door = FakeSlurm(RUNNING, first=node("n1", "DOWN", "NOT_RESPONDING"))
    assert looked(door)[0]
    assert door.changes == marked(";x=0")


def test_a_job_that_has_lost_all_its_nodes() -> None:
    """Nothing of it is left to wait for."""
    assert looked(FakeSlurm(RUNNING._replace(nodes="")))[0]


def test_slurm_is_waited_for() -> None:
    """As long as the node is in the job and up, it may be ours that is cut off; watchers look one after the other."""
    door = FakeSlurm(RUNNING, SlurmAwayError("away"), SlurmError("refused"), RUNNING, WITHOUT)
    assert looked(door, index=2) == (True, [2 * APART_S, *[LOOK_S] * 4])
    assert door.changes == marked("")


def test_a_node_that_slurm_does_not_know() -> None:
    """Nothing is known then, and nothing done."""
    door = FakeSlurm(RUNNING, job(7, state="COMPLETING"))
    door.known_nodes = {}
    assert looked(door) == (False, [0.0, LOOK_S])
    assert door.changes == []


@pytest.mark.parametrize(
    "found",
    [job(7, state="COMPLETING"), job(7, state="PENDING", restarts=2), RUNNING._replace(restarts=2, nodes="n[2-4]")],
)
def test_nothing_is_left_to_do(found: Job) -> None:
    """Slurm, the supervisor or another watcher has ended this run."""
    door = FakeSlurm(found)
    assert looked(door) == (False, [0.0])
    assert door.changes == []


def test_a_requeue_that_is_refused() -> None:
    """Is asked for again."""
    door = FakeSlurm(WITHOUT)
    door.refusals["requeue", 7] = 1
    assert looked(door) == (True, [0.0, LOOK_S])


def test_a_comment_without_a_token() -> None:
    """A job that sits there without its script is requeued all the same: its node that is down speaks for it."""
    door = FakeSlurm(WITHOUT._replace(comment="edited"))
    assert looked(door) == (True, [0.0])
    assert door.changes == [("requeue", 7)]


def test_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A supervisor that is well goes on; the guard that lost it does not look for ever."""
    monkeypatch.setattr(orphan, "LOOKS", 3)
    assert looked(FakeSlurm(RUNNING)) == (False, [0.0, LOOK_S, LOOK_S, LOOK_S])
