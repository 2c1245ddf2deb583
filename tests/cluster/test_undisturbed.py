"""The cost of slurm_plugin's processes for a job without faults: memory, and requests to slurmctld."""

import re
import time

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster import training
from tests.cluster.jobs import ALICE_UID

pytestmark = pytest.mark.cluster
SUPERVISOR_KB, GUARD_KB = 30_000, 20_000
QUIET_S = 35.0  # long enough for requests every 30 s
LAUNCHES = 3  # any launch is over after this number of quiet times


def resident(box: Sandbox, node: str, what: str) -> list[int]:
    """Return the KiB resident of our Python processes of this kind on a node."""
    told = box.run(["ps", "-eww", "-o", "rss=,comm=,args="], user="root", node=node).stdout
    rows = [line.split(None, 2) for line in told.splitlines()]
    return [int(rss) for rss, name, words in rows if name.startswith("python") and f" job {what} " in words]


def asked(box: Sandbox, uid: int = ALICE_UID) -> int:
    """Return how many requests of a user slurmctld has answered."""
    told = box.run(["sdiag"], user="root").stdout
    found = re.search(rf"\(\s*{uid}\)\s+count:(\d+)", told)
    assert found, told
    return int(found[1])


@pytest.mark.full  # 20 s
def test_a_job_that_runs_undisturbed(cluster: Sandbox) -> None:
    """One supervisor of at most 30 MB, and guards of at most 20 MB on every node.

    The nodes report by themselves: in 35 s no command of the job's user reaches slurmctld, although drains, time and
    hangs are checked.
    """
    job = training.submit(cluster, "undisturbed", nodes=3, grace="10s", hang_timeout="10m", time="1h")
    training.until_runs(job, 0, nodes=3)
    (supervisor,) = resident(cluster, "n1", "supervise")
    guards = [rss for node in ("n1", "n2", "n3") for rss in resident(cluster, node, "guard")]
    assert len(guards) >= 3
    print(f"KiB resident: supervisor {supervisor}, guards {guards}")
    assert supervisor <= SUPERVISOR_KB
    assert max(guards) <= GUARD_KB

    for _ in range(LAUNCHES):
        before, steps = asked(cluster), len(training.writes(job))
        assert before  # the requests of submission and launch
        time.sleep(QUIET_S)
        if asked(cluster) == before:
            break
    else:
        pytest.fail("slurmctld was asked in each of these times")
    assert len(training.writes(job)) > steps  # it ran meanwhile
