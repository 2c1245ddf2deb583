"""What is wrong with a node, as the periodic check of a real Slurm finds it between jobs."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster.command import until
from tests.cluster.jobs import reasons
from tests.cluster.looks import PASSES, forget, look
from tests.cluster.sites import SetChecks, changing
from tests.cluster.syslog import Syslog

pytestmark = pytest.mark.cluster

TOOL = {"gpu-check": {"tool": "/usr/bin/true"}, "mandatory": ["gpu-xid"]}
FLAPPING = {"command": {"run": ["/sandbox/bin/flapping"]}}
HUNG = {"mounts": {"paths": ["/scratch"]}, "deadline": "1s"}


@pytest.fixture
def checks(cluster: Sandbox, tmp_path: Path) -> Iterator[SetChecks]:
    """What changes the checks of the site for the test; no node remembers anything before and after it."""
    forget(cluster)
    with changing(cluster, tmp_path) as change:
        yield change
    forget(cluster)


# fault -> (the site's own checks, the item and what it says, as a regular expression, whether good looks bring it back)
FOUND: dict[str, tuple[dict[str, Any], str, bool]] = {
    "shm-full": ({}, "disk-size shm: 512 MB < 1 GB", True),
    "cache-full": ({}, "disk-size cache: 512 MB < 32 GB", True),
    "root-full": ({}, r"disk-size root: (?:49|50|51)\d[.\d]* MB < 32 GB", True),
    "gpu-missing": ({}, "gpu-check: 3 of 4 GPUs", True),
    "flapping": (FLAPPING, "command: flapping: this look fails, the next one passes", True),
    "xid": (TOOL, "gpu-xid: Xid 79 on 0000:5f:00: it fell off the bus, reboot the node", False),
}


@pytest.mark.parametrize("fault", FOUND)
def test_a_fault_takes_its_node_out(cluster: Sandbox, checks: SetChecks, fault: str) -> None:
    """That node alone, at the first look, or the third where a running job may be why; healed it is back after a row of
    good ones, unless it was an event."""
    own, found, back = FOUND[fault]
    checks(own)
    cluster.break_node("n2", fault)
    if fault.endswith("-full"):
        look(cluster, "n2", 2)
        assert reasons(cluster) == {}
    for node in ("n1", "n2", "n3"):
        look(cluster, node)
    drained = reasons(cluster)
    assert set(drained) == {"n2"}
    assert re.fullmatch(f"slurm_plugin: {found}", drained["n2"]), drained
    cluster.heal_node("n2")
    look(cluster, "n2", PASSES - 1)
    assert reasons(cluster) == drained
    look(cluster, "n2")
    assert reasons(cluster) == ({} if back else drained)


def test_a_check_that_flaps_keeps_its_node_out(cluster: Sandbox, checks: SetChecks) -> None:
    """It passes at every other look, which is no row; one drain, one reason, and no resume."""
    checks(FLAPPING)
    log = Syslog(cluster)
    cluster.break_node("n2", "flapping")
    look(cluster, "n2", 2 * PASSES + 2)
    assert reasons(cluster) == {"n2": f"slurm_plugin: {FOUND['flapping'][1]}"}
    assert "resumed n2" not in log.of("n2")
    cluster.heal_node("n2")
    look(cluster, "n2", PASSES)
    assert reasons(cluster) == {}


def test_a_mount_that_never_answers_is_unknown(cluster: Sandbox, checks: SetChecks) -> None:
    """However often it is looked at: a time-out that names the path, no drain, and one process that hangs there."""
    checks(HUNG)
    log = Syslog(cluster)
    cluster.break_node("n2", "hung-mount")
    look(cluster, "n2", 4)
    assert log.of("n2").count("[slurm_plugin] n2 mounts paths: timeout: no answer within 1 s: /scratch\n") == 1
    still = re.findall(
        r"mounts paths: timeout: \S+ \(process (\d+)\) of a look before hangs there still: /scratch", log.of("n2")
    )
    assert len(still) == 3
    assert len(set(still)) == 1
    assert reasons(cluster) == {}
    cluster.heal_node("n2")
    look(cluster, "n2")
    assert log.of("n2").count("mounts paths: ") == 4


def test_a_mount_that_never_answers_brings_no_node_back(cluster: Sandbox, checks: SetChecks) -> None:
    """A node that is out for a mount stays out while nobody knows: unknown is not healthy."""
    checks({**HUNG, "mandatory": ["mounts.paths"]})
    cluster.run(["umount", "/scratch"], user="root", node="n2")
    try:
        look(cluster, "n2", 3)  # causes that nodes share drain at the third failure in a row
        assert reasons(cluster) == {"n2": "slurm_plugin: mounts paths: /scratch: not mounted"}
        cluster.break_node("n2", "hung-mount")
        look(cluster, "n2", PASSES + 1)
        assert reasons(cluster) == {"n2": "slurm_plugin: mounts paths: /scratch: not mounted"}
        cluster.heal_node("n2")
    finally:
        cluster.run(["mount", "-t", "tmpfs", "-o", "size=64g,mode=1777", "scratch", "/scratch"], user="root", node="n2")
    look(cluster, "n2", PASSES)
    assert reasons(cluster) == {}
    until(lambda: cluster.states()["n2"] == "idle")
