"""The link of a real machine, cut and restored between two jobs: each machine of the sandbox has its own interfaces."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster.jobs import reasons
from tests.cluster.sites import changing
from tests.waiting import until

pytestmark = pytest.mark.cluster

LOST = "eth0: carrier_down_count +1 in "


@pytest.fixture
def strict(cluster: Sandbox, tmp_path: Path) -> Iterator[Sandbox]:
    """Set a check: no node of a job may have lost its link in the last hour. Restore the site after the test."""
    with changing(cluster, tmp_path) as change:
        change({"mandatory": ["nic"], "nic": {"interfaces": ["eth0"], "link_losses": 0, "mtu": 1500}})
        yield cluster


def test_a_link_that_was_lost_between_two_jobs_drains_its_node(strict: Sandbox) -> None:
    """Both prologs see a link that is up. Only the second one can compare its counters with earlier ones."""
    strict.run(["srun", "--nodes=1", "--nodelist=n2", "true"], user="root")
    assert reasons(strict) == {}
    until(lambda: strict.states()["n2"] == "idle")  # the epilog has checked the link, too
    strict.break_node("n2", "network-cut")
    strict.heal_node("n2")
    until(lambda: strict.run(["cat", "/sys/class/net/eth0/operstate"], node="n2").stdout == "up\n")

    def found_by_a_job() -> dict[str, str]:  # a node that was cut off may not take a job immediately
        strict.run(["srun", "--nodes=1", "--nodelist=n2", "--immediate=8", "true"], user="root", check=False)
        return reasons(strict)

    found = until(found_by_a_job)
    assert found["n2"].startswith(f"slurm_plugin: nic: {LOST}")
    assert " > 0 in 60 min [job " in found["n2"]
