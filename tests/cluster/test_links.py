"""The link of a real machine, cut and healed between two jobs: each machine of the sandbox sees its own interfaces."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster.command import until
from tests.cluster.jobs import reasons
from tests.cluster.sites import changing

pytestmark = pytest.mark.cluster

DEADLINE_S = 30.0
LOST = "eth0: carrier_down_count +1 in "


@pytest.fixture
def strict(cluster: Sandbox, tmp_path: Path) -> Iterator[Sandbox]:
    """Every job's nodes must not have lost their link in the last hour; the site is as it was again after the test."""
    with changing(cluster, tmp_path) as change:
        change({"mandatory": ["nic"], "nic": {"interfaces": ["eth0"], "link_losses": 0, "mtu": 1500}})
        yield cluster


def test_a_link_that_was_lost_between_two_jobs_drains_its_node(strict: Sandbox) -> None:
    """Both prologs see a link that is up; only the second one has an earlier one's counters to compare with."""
    strict.run(["srun", "--nodes=1", "--nodelist=n2", "true"], user="root")
    assert reasons(strict) == {}
    until(lambda: strict.states()["n2"] == "idle")  # the epilog has looked at the link, too
    strict.break_node("n2", "network-cut")
    strict.heal_node("n2")
    until(lambda: strict.run(["cat", "/sys/class/net/eth0/operstate"], node="n2").stdout == "up\n", 10)
    deadline = time.monotonic() + DEADLINE_S  # a node that was cut off may not take a job at once
    while not (found := reasons(strict)) and time.monotonic() < deadline:
        strict.run(["srun", "--nodes=1", "--nodelist=n2", "--immediate=8", "true"], user="root", check=False)
    assert found["n2"].startswith(f"slurm_plugin: nic: {LOST}")
    assert " > 0 in 60 min [job " in found["n2"]
