"""No attempt writes while the next one runs: nodes cut off, dead, or without their slurmd, with and without spares."""

import time

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster import training

pytestmark = pytest.mark.cluster
# SlurmdTimeout is 10 s in the sandbox. Where the batch host is gone its steps' daemons on other nodes wait a minute for
# their srun, and the job stays COMPLETING for as long.
SLURM_NOTICES_S = 180.0


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("victim", "spares"), [("n2", 1), pytest.param("n2", 0, marks=pytest.mark.long), ("n1", 1), ("n1", 0)]
)
def test_a_node_that_is_cut_off_writes_nothing_once_the_next_attempt_runs(
    cluster: Sandbox, victim: str, spares: int
) -> None:
    """Its ranks live on behind the cut, and reach the job's files; its own guard ends them before the next attempt."""
    job = training.submit(cluster, f"cut-{victim}-{spares}", spares=spares)
    training.until_runs(job, 0)
    cluster.break_node(victim, "network-cut")
    cut = time.time()
    training.until_runs(job, 1, seconds=SLURM_NOTICES_S)
    assert victim not in training.hosts(job, 1)
    assert max(write.time for write in training.writes(job) if write.attempt == 0) > cut  # else it proves nothing
    time.sleep(2)
    assert training.stop(job) == "COMPLETED"
    cluster.heal_node(victim)
    time.sleep(3)
    training.whole(job)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("victim", "spares"), [("n2", 1), ("n1", 1)])
def test_a_node_that_dies(cluster: Sandbox, victim: str, spares: int) -> None:
    """The job goes on without it: on a spare, or requeued; with its batch host gone, its other nodes see to that."""
    job = training.submit(cluster, f"dead-{victim}-{spares}", spares=spares)
    training.until_runs(job, 0)
    cluster.break_node(victim, "node-dead")
    training.until_runs(job, 1, seconds=SLURM_NOTICES_S)
    assert victim not in training.hosts(job, 1)
    assert training.stop(job) == "COMPLETED"
    training.whole(job)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("spares", [1, pytest.param(0, marks=pytest.mark.long)])
def test_a_slurmd_that_dies_leaves_no_ranks_behind(cluster: Sandbox, spares: int) -> None:
    """Only the daemon is killed: its ranks are ended before the program runs again elsewhere."""
    job = training.submit(cluster, f"slurmd-{spares}", spares=spares)
    training.until_runs(job, 0)
    cluster.break_node("n2", "slurmd-dead")
    training.until_runs(job, 1, seconds=SLURM_NOTICES_S)
    assert "n2" not in training.hosts(job, 1)
    assert training.stop(job) == "COMPLETED"
    training.whole(job)
