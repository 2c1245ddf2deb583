"""Faults of nodes, found between jobs by the periodic check of a real Slurm."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster.jobs import reasons
from tests.cluster.looks import PASSES, forget, look, look_until
from tests.cluster.sites import SetChecks, changing
from tests.cluster.syslog import Syslog
from tests.waiting import until

pytestmark = pytest.mark.cluster

TOOL = {"gpu-check": {"tool": "/usr/bin/true"}, "mandatory": ["gpu-xid"]}
FLAPPING = {"command": {"run": ["/sandbox/bin/flapping"]}}
PATIENT: dict[str, Any] = {"mounts": {"paths": ["/scratch"]}, "deadline": "60s"}
HUNG = {**PATIENT, "deadline": "1s"}


@pytest.fixture
def checks(cluster: Sandbox, tmp_path: Path) -> Iterator[SetChecks]:
    """Yield a function that changes the site's checks. No node has state before and after the test."""
    forget(cluster)
    with changing(cluster, tmp_path) as change:
        yield change
    forget(cluster)


# fault -> (the item and its message, as a regular expression; whether good checks resume the node)
FOUND = {
    "shm-full": ("disk-size shm: 512 MB < 1 GB", True),
    "cache-full": ("disk-size cache: 512 MB < 32 GB", True),
    "root-full": (r"disk-size root: (?:49|50|51)\d[.\d]* MB < 32 GB", True),
    "gpu-missing": ("gpu-check: 3 of 4 GPUs", True),
    "flapping": ("command: flapping: this look fails, the next one passes", True),
    "xid": ("gpu-xid: Xid 79 on 0000:5f:00: it fell off the bus, reboot the node", False),
}


SOME, OTHERS = ("shm-full", "cache-full", "root-full", "gpu-missing"), ("flapping", "xid")


@pytest.mark.full  # over 5 s
@pytest.mark.parametrize(("faults", "own"), [(SOME, {}), (OTHERS, {**TOOL, **FLAPPING})], ids=["some", "others"])
def test_faults_take_their_nodes_out(
    cluster: Sandbox, checks: SetChecks, faults: tuple[str, ...], own: dict[str, Any]
) -> None:
    """Only those nodes are drained, at the first check, or at the third if a running job may be the cause. Repaired
    nodes are resumed after several good checks, unless the fault was an event.
    """
    checks(own)
    broken = dict(zip(("n2", "n3", "n4", "n5"), faults, strict=False))
    for node, fault in broken.items():
        cluster.break_node(node, fault)
        if fault.endswith("-full"):
            look(cluster, node, 2)
    assert reasons(cluster) == {}
    look(cluster, "n1")
    for node in broken:
        look_until(cluster, node, lambda node=node: node in reasons(cluster))  # type: ignore[misc]
    drained = reasons(cluster)
    assert set(drained) == {*broken}
    for node, fault in broken.items():
        assert re.fullmatch(f"slurm_plugin: {FOUND[fault][0]}", drained[node]), drained
        cluster.heal_node(node)
        look(cluster, node, PASSES - 1)
    assert reasons(cluster) == drained
    for node, fault in broken.items():
        back = FOUND[fault][1]
        look_until(cluster, node, lambda node=node, back=back: not (back and node in reasons(cluster)))  # type: ignore[misc]
    assert reasons(cluster) == {node: drained[node] for node, fault in broken.items() if not FOUND[fault][1]}


def test_a_check_that_flaps_keeps_its_node_out(cluster: Sandbox, checks: SetChecks) -> None:
    """Every second check passes, so there are never several passes in a row: one drain, one reason, no resume."""
    checks(FLAPPING)
    log = Syslog(cluster)
    cluster.break_node("n2", "flapping")
    look(cluster, "n2", 2 * PASSES + 2)
    assert reasons(cluster) == {"n2": f"slurm_plugin: {FOUND['flapping'][0]}"}
    assert "resumed n2" not in log.of("n2")
    cluster.heal_node("n2")
    look(cluster, "n2", PASSES)
    assert reasons(cluster) == {}


def test_a_mount_that_never_answers_is_unknown(cluster: Sandbox, checks: SetChecks) -> None:
    """However often it is checked: a time-out that names the path, no drain, and only one stuck process."""
    checks(HUNG)
    log = Syslog(cluster)
    cluster.break_node("n2", "hung-mount")
    look(cluster, "n2", 4)
    assert log.of("n2").count("[slurm_plugin] n2 mounts paths: timeout: no answer within 1 s: /scratch\n") == 1
    still = re.findall(
        r"mounts paths: timeout: \S+ \(process (\d+)\) of an earlier run is still stuck: /scratch", log.of("n2")
    )
    assert len(still) == 3
    assert len(set(still)) == 1
    assert reasons(cluster) == {}
    cluster.heal_node("n2")
    checks(PATIENT)
    look(cluster, "n2")
    assert log.of("n2").count("mounts paths: ") == 4


@pytest.mark.full  # 13 s
def test_a_mount_that_never_answers_brings_no_node_back(cluster: Sandbox, checks: SetChecks) -> None:
    """A node that is drained for a mount stays drained while its state is unknown."""
    checks({**PATIENT, "mandatory": ["mounts.paths"]})
    cluster.run(["umount", "/scratch"], user="root", node="n2")
    try:
        look(cluster, "n2", 3)  # causes that nodes share drain at the third failure in a row
        assert reasons(cluster) == {"n2": "slurm_plugin: mounts paths: /scratch: not mounted"}
        cluster.break_node("n2", "hung-mount")
        checks({**HUNG, "mandatory": ["mounts.paths"]})
        look(cluster, "n2", PASSES + 1)
        assert reasons(cluster) == {"n2": "slurm_plugin: mounts paths: /scratch: not mounted"}
        cluster.heal_node("n2")
        checks({**PATIENT, "mandatory": ["mounts.paths"]})
    finally:
        cluster.run(["mount", "-t", "tmpfs", "-o", "size=64g,mode=1777", "scratch", "/scratch"], user="root", node="n2")
    look(cluster, "n2", PASSES)
    assert reasons(cluster) == {}
    until(lambda: cluster.states()["n2"] == "idle")


@pytest.mark.full  # over 5 s
@pytest.mark.parametrize("code", [0, 1])
def test_a_burn_in_decides(cluster: Sandbox, checks: SetChecks, code: int) -> None:
    """The repaired node comes back only after the site's test has passed; else its reason says why it stays out."""
    program = cluster.directory / "etc/slurm/burn-in"
    program.write_text(f"#!/bin/sh\necho 12 GB/s\nexit {code}\n")
    program.chmod(0o755)
    checks({}, burn_in={"command": ["/etc/slurm/burn-in"]})
    log = Syslog(cluster)
    cluster.break_node("n2", "gpu-missing")
    look(cluster, "n2")
    cluster.heal_node("n2")
    look(cluster, "n2", PASSES)
    assert reasons(cluster) == {"n2": "slurm_plugin: gpu-check: 3 of 4 GPUs"}
    until(lambda: f"n2: the burn-in ended: exit code {code}\n" in log.of("n2"))
    stays = {"n2": "slurm_plugin: burn-in: exit code 1: 12 GB/s; gpu-check: 3 of 4 GPUs"} if code else {}
    look_until(cluster, "n2", lambda: reasons(cluster) == stays)
    look(cluster, "n2", PASSES)
    assert reasons(cluster) == stays
