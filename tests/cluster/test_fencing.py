"""No attempt writes while the next one runs, with and without spares: nodes are cut off, die, or lose their slurmd."""

import time

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster import training

pytestmark = pytest.mark.cluster
# SlurmdTimeout is 10 s in the sandbox. If the batch host is gone, slurmstepd on other nodes waits a minute for srun,
# and the job stays COMPLETING as long.


@pytest.mark.full  # 70 s
@pytest.mark.parametrize(
    ("victim", "spares"), [("n2", 1), pytest.param("n2", 0, marks=pytest.mark.long), ("n1", 1), ("n1", 0)]
)
def test_a_node_that_is_cut_off_writes_nothing_once_the_next_attempt_runs(
    cluster: Sandbox, victim: str, spares: int
) -> None:
    """Its ranks still run and reach the job's files. Its own guard ends them before the next attempt."""
    job = training.submit(cluster, f"cut-{victim}-{spares}", spares=spares)
    training.until_runs(job, 0)
    cluster.break_node(victim, "network-cut")
    cut = time.time()
    training.until_runs(job, 1)
    assert victim not in training.hosts(job, 1)
    assert max(write.time for write in training.writes(job) if write.attempt == 0) > cut  # else the test proves nothing
    time.sleep(2)  # `whole` would find late writes of the first attempt
    assert training.stop(job) == "COMPLETED"
    cluster.heal_node(victim)
    time.sleep(3)  # delayed writes could arrive now
    training.whole(job)


@pytest.mark.full  # 66 s
@pytest.mark.parametrize(("victim", "spares"), [("n2", 1), ("n1", 1)])
def test_a_node_that_dies(cluster: Sandbox, victim: str, spares: int) -> None:
    """The job goes on without it: on a spare, or requeued, by the guards of other nodes if it was the batch host."""
    job = training.submit(cluster, f"dead-{victim}-{spares}", spares=spares)
    training.until_runs(job, 0)
    cluster.break_node(victim, "node-dead")
    training.until_runs(job, 1)
    assert victim not in training.hosts(job, 1)
    assert training.stop(job) == "COMPLETED"
    assert "could not" not in job.log
    named = {} if victim == "n1" else {victim: "exclude"}  # with the batch host the record is lost, too
    assert job.diagnosis() == ("node_down", named)
    training.whole(job)


@pytest.mark.full  # 83 s
@pytest.mark.parametrize("spares", [1, pytest.param(0, marks=pytest.mark.long)])
def test_a_slurmd_that_dies_leaves_no_ranks_behind(cluster: Sandbox, spares: int) -> None:
    """Only slurmd is killed. Its ranks are ended before the program runs elsewhere."""
    job = training.submit(cluster, f"slurmd-{spares}", spares=spares)
    training.until_runs(job, 0)
    cluster.break_node("n2", "slurmd-dead")
    training.until_runs(job, 1)
    assert "n2" not in training.hosts(job, 1)
    assert training.stop(job) == "COMPLETED"
    training.whole(job)
