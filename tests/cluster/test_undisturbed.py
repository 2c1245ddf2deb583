"""What our own processes cost a job that runs undisturbed: their memory, and what they ask of Slurm's controller."""

import re
import time

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster import training
from tests.cluster.jobs import ALICE_UID, Job

pytestmark = pytest.mark.cluster
SUPERVISOR_KB, GUARD_KB = 30_000, 20_000
QUIET_S = 35.0  # what asks every 30 s would show


@pytest.fixture
def job(cluster: Sandbox, request: pytest.FixtureRequest) -> Job:
    """A training run on three nodes for which everything is looked at: drains, time, a hang."""
    job = training.submit(cluster, request.node.name, nodes=3, grace="10s", hang_timeout="1m", time="10m")
    training.until_runs(job, 0, nodes=3)
    return job


def resident(box: Sandbox, node: str, what: str) -> list[int]:
    """KiB resident of our Python processes of this kind on a node."""
    told = box.run(["ps", "-eww", "-o", "rss=,comm=,args="], user="root", node=node).stdout
    rows = [line.split(None, 2) for line in told.splitlines()]
    return [int(rss) for rss, name, words in rows if name.startswith("python") and f" job {what} " in words]


def asked(box: Sandbox) -> int:
    """How many requests of alice's slurmctld has answered."""
    told = box.run(["sdiag"], user="root").stdout
    found = re.search(rf"\(\s*{ALICE_UID}\)\s+count:(\d+)", told)
    assert found, told
    return int(found[1])


def test_the_supervisor_and_its_guards_are_small(cluster: Sandbox, job: Job) -> None:
    """While a program runs: one supervisor of 30 MB at most, and guards of 20 MB at most on every node."""
    (supervisor,) = resident(cluster, "n1", "supervise")
    guards = [rss for node in ("n1", "n2", "n3") for rss in resident(cluster, node, "guard")]
    assert len(guards) >= 3
    print(f"KiB resident: supervisor {supervisor}, guards {guards}")
    assert supervisor <= SUPERVISOR_KB
    assert max(guards) <= GUARD_KB


def test_the_controller_is_not_asked_while_nothing_happens(cluster: Sandbox, job: Job) -> None:
    """Nodes tell of themselves: in 35 s no command of the job's user has reached slurmctld."""
    time.sleep(2)  # the launch is over
    before = asked(cluster)
    assert before  # the submission, the launch: they are counted there
    steps = len(training.writes(job))
    time.sleep(QUIET_S)
    assert asked(cluster) == before
    assert len(training.writes(job)) > steps  # it ran meanwhile
