"""A node breaks in a full cluster: no other job gets the other nodes of its job before that job may start again."""

from collections.abc import Iterator

import pytest

from slurm_plugin.records.site_settings import RESERVATION_PREFIX
from slurm_plugin.sandbox import Sandbox
from tests.cluster.controller import spool
from tests.cluster.jobs import USE_GPU, Job, reasons, submit, until_run
from tests.waiting import until

pytestmark = pytest.mark.cluster


@pytest.fixture
def full(cluster: Sandbox) -> Iterator[tuple[Sandbox, int]]:
    """Yield a cluster in which bob has two of five nodes, and his job."""
    yield cluster, sleeper(cluster, "--time=60", "--nodelist=n[4-5]")
    until(lambda: not reserved(cluster))


def sleeper(box: Sandbox, *options: str) -> int:
    """Submit a job of bob's on two nodes without slurm_plugin, and return its id."""
    words = ["sbatch", "--parsable", "--nodes=2", "--exclusive", *options, "--wrap=sleep 9000"]
    return int(box.run(words, user="bob").stdout)


def both(box: Sandbox, name: str) -> tuple[Job, Job]:
    """Submit a job of three nodes, which runs on all free nodes, and a job of bob's that waits for two."""
    job = submit(box, name, nodes=3, command=USE_GPU, retries=3, time="60")
    until_run(job, 0, nodes=3)
    assert job.nodes == {"n1", "n2", "n3"}
    return job, Job(box, sleeper(box, "--time=600"), job.directory)  # too long for backfill


def reserved(box: Sandbox) -> list[str]:
    """Return the reservations."""
    out = box.run(["scontrol", "-o", "show", "reservation"], user="root").stdout
    return [line for line in out.splitlines() if line.startswith("ReservationName=")]


@pytest.mark.full  # over 5 s
@pytest.mark.parametrize("fault", ["gpu-missing", "node-dead"])
def test_nobody_else_gets_the_nodes_of_a_job_whose_node_broke(full: tuple[Sandbox, int], fault: str) -> None:
    """Bob's job waits for two nodes. It gets neither the good nodes of the restarted job nor its next ones."""
    box, holder = full
    job, waits = both(box, f"kept-{fault}")
    box.break_node("n2", fault)
    job.until(lambda: job.grant.requeues == 1, "the restart")
    job.until(lambda: job.show("r") in (["Resources"], ["Priority"]), "its place in the queue")
    until(lambda: not spool(box))
    assert waits.state == "PENDING"
    box.run(["scancel", str(holder)], user="root")
    until_run(job, 1, nodes=3)
    assert waits.state == "PENDING"
    (job.directory / "done.1").touch()
    assert job.end() == "COMPLETED"


@pytest.mark.full  # over 5 s
def test_a_users_own_word_keeps_no_node(full: tuple[Sandbox, int]) -> None:
    """A user's job reports a bad node, but root finds no fault: bob's waiting job gets its nodes."""
    box, _ = full
    job, waits = both(box, "not-kept")
    box.run(["scontrol", "update", f"JobId={job.id}", "Comment=[sp1;retries=3;run=0;x=1]"])
    box.run(["scontrol", "requeue", str(job.id)])
    waits.until(lambda: waits.state == "RUNNING", "the nodes of the other job")
    assert waits.nodes < {"n1", "n2", "n3"}
    assert job.state == "PENDING"
    assert reasons(box) == {}


@pytest.mark.full  # over 5 s
def test_a_worker_that_is_killed_leaves_a_reservation_that_ends(full: tuple[Sandbox, int]) -> None:
    """Slurm ends it after its time, and the next worker deletes it before that."""
    box, _ = full
    job, waits = both(box, "left-behind")
    box.break_node("n2", "gpu-missing")
    worker = "pgrep -u slurm -f 'hook epilog_[s]lurmctld'"
    words = f"until {worker}; do sleep 0.01; done; sleep 0.5; kill -9 $({worker})"
    box.run(["sh", "-c", words], user="root")
    found = until(lambda: reserved(box) or (job.grant.requeues and ["none"]))
    if found == ["none"]:
        pytest.skip("the worker was done with it before it was killed")
    (made,) = found
    assert f"ReservationName={RESERVATION_PREFIX}{job.id}_1 " in made
    assert "Users=root " in made
    until(lambda: not reserved(box))
    # Bob's job gets them, unless the restarted job, which is first in the queue, may start before that.
    waits.until(lambda: waits.state == "RUNNING" or job.show("r") == ["Resources"], "the nodes that were kept")
