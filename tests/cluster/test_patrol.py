"""The periodic check compares idle nodes with the devices that each had when they were counted."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from slurm_plugin.sandbox import Sandbox
from tests.cluster.jobs import reasons
from tests.cluster.looks import PASSES, forget, look
from tests.cluster.sites import SetChecks, changing
from tests.waiting import until

pytestmark = pytest.mark.cluster

SECOND = ("n2", "n3", "n4")  # have a second interface, with the default route
# The other end of its cable is a separate switch.
MADE = (
    "link add eth1 type veth peer name switch", "link set switch up", "link set eth1 up", "route add default dev eth1",
)  # fmt: skip
FAILURES = 3  # failures in a row, for checks that may also fail on a good node


def ip(box: Sandbox, node: str, words: str) -> None:
    """Change a node's network."""
    box.run(["ip", *words.split()], user="root", node=node)


@pytest.fixture
def checks(cluster: Sandbox, tmp_path: Path) -> Iterator[SetChecks]:
    """Yield a function that changes the site. During the test three nodes have a second interface."""
    forget(cluster)
    for node in SECOND:
        for words in MADE:
            ip(cluster, node, words)
    with changing(cluster, tmp_path) as change:
        yield change
    for node in SECOND:
        with contextlib.suppress(Exception):
            ip(cluster, node, "link delete eth1")
    forget(cluster)


@pytest.mark.full  # over 5 s
def test_what_idle_nodes_lose_is_found_with_the_proposed_file(cluster: Sandbox, checks: SetChecks) -> None:
    """A GPU is missed at the first check, a link at the third. Nodes with other links, or with a short interruption,
    are not drained. Repaired nodes are resumed.
    """
    count = "slurm-plugin check --equipment"
    proposed = cluster.run(["sh", "-c", f"srun -N5 {count} | slurm-plugin site equipment"]).stdout
    assert proposed == (
        "equipment:\n"
        "  n[1,5]: {gpus: 4, device: /dev/fakegpu%d}\n"
        "  n[2-4]: {gpus: 4, device: /dev/fakegpu%d, interfaces: [eth1]}\n"
    )
    until(lambda: set(cluster.states().values()) == {"idle"})
    checks({"gpu-check": {"count": None}}, equipment=yaml.safe_load(proposed)["equipment"])
    cluster.break_node("n2", "gpu-missing")
    ip(cluster, "n3", "link delete eth1")
    ip(cluster, "n4", "link set switch down")
    everywhere = ("n1", "n2", "n3", "n4", "n5")
    for node in everywhere:
        look(cluster, node, FAILURES - 1)
    gpu = {"n2": "slurm_plugin: gpu-check: 3 of 4 GPUs"}
    assert reasons(cluster) == gpu
    ip(cluster, "n4", "link set switch up")
    for node in everywhere:
        look(cluster, node)
    assert reasons(cluster) == {**gpu, "n3": "slurm_plugin: nic: eth1 is not there"}
    cluster.heal_node("n2")
    for words in MADE:
        ip(cluster, "n3", words)
    for node in ("n2", "n3"):
        look(cluster, node, PASSES)
    assert reasons(cluster) == {}
