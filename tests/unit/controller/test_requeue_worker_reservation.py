"""The controller's worker deletes the reservation of a job's nodes, whatever happens to the job."""

from dataclasses import replace
from pathlib import Path

import pytest

from slurm_plugin.controller import requeue_worker
from slurm_plugin.controller.queue_limits import Policy
from slurm_plugin.slurm import Queueing
from tests.fakes import FakeSlurm, node
from tests.unit.controller.serving import BAD, ENDED, given_job, serve

FIRST = Policy(nice=1000)
KEPT = replace(ENDED, kept=True)
BACK = ("unreserve", "slurm_plugin_7_1")
FINE = [node("n1"), node("n2")]
MARKED = "[sp1;retries=3;run=0;x=1]"
# The situation -> the changes, in order: `update_job` counts first, then starts.
ENDS = {
    "root's verdict: behind its start": ([given_job()], [node("n1"), BAD], ["update_job", "update_job", "unreserve"]),
    "a user's word: before it is counted": (
        [given_job(comment=MARKED)],
        FINE,
        ["unreserve", "update_job", "update_job", "unreserve"],
    ),
    "a requeue that is not ours": ([given_job()], FINE, ["unreserve"]),
    "a job that has ended": ([given_job(state="FAILED")], [node("n1"), BAD], ["unreserve"]),
    "a job that Slurm has forgotten": ([], FINE, ["unreserve"]),
    "no restart left": ([given_job(admin_comment='sp1:{"granted":0}')], [node("n1"), BAD], ["unreserve", "update_job"]),
}


@pytest.mark.parametrize(("jobs", "nodes", "changes"), ENDS.values(), ids=ENDS)
def test_it_is_taken_back(tmp_path: Path, jobs: list, nodes: list, changes: list[str]) -> None:  # type: ignore[type-arg]
    """After the Start of a job whose Nice was lowered; in all other cases before any other change."""
    requeue_worker.put(tmp_path, KEPT)
    assert list(requeue_worker.entries(tmp_path)) == [KEPT]
    door = FakeSlurm(jobs, nodes)
    door.queues[7] = Queueing()
    serve(tmp_path, door, policy=FIRST)
    assert [str(change[0]) for change in door.changes if change[0] != "cancel"] == changes
    assert BACK in door.changes
    assert list(requeue_worker.entries(tmp_path)) == []


def test_one_of_a_run_before(tmp_path: Path) -> None:
    """The job was requeued again: the older reservation is deleted by its own name."""
    requeue_worker.put(tmp_path, KEPT)
    requeue_worker.put(tmp_path, replace(ENDED, told=2))
    door = FakeSlurm([given_job(restarts=2)], FINE)
    serve(tmp_path, door)
    assert door.changes == [BACK]


def test_a_controller_that_refuses(tmp_path: Path) -> None:
    """The worker goes on: Slurm itself ends the reservation."""
    requeue_worker.put(tmp_path, KEPT)
    door = FakeSlurm([given_job(state="COMPLETED")], FINE)
    door.refusals["unreserve", BACK[1]] = 1
    serve(tmp_path, door)
    assert list(requeue_worker.entries(tmp_path)) == []
