"""Faults of a sandbox's nodes: visible only on their node, undone together, and the node's state afterwards."""

import itertools
import os
import signal
import subprocess
import time

import pytest

from slurm_plugin.errors import SlurmPluginError
from slurm_plugin.sandbox import Sandbox, machine
from slurm_plugin.sandbox.faults import FAULTS
from tests.waiting import HANG_S, until

pytestmark = pytest.mark.cluster


def faults_of(box: Sandbox, node: str) -> tuple[str, ...]:
    """Return the faults that status shows."""
    return next(row.faults for row in box.status().machines if row.name == node)


# fault -> (command on the node as alice, text in its output during the fault)
SEEN_BY_A_USER = {
    "dns": ("getent hosts n1 || echo gone", "gone"),
    "shm-full": ("df -m --output=avail /dev/shm", "512"),
    "cache-full": ("df -m --output=avail /cache", "512"),
    "root-full": ("df -m --output=size /", "512"),
    "hung-mount": ("grep scratch /proc/mounts", "hung-mount /scratch fuse"),
    "xid": ("cat /dev/kmsg", "NVRM: Xid"),
    "flapping": ("test -e /run/flapping && echo flaps", "flaps"),
    "gpu-missing": ("test -e /dev/fakegpu3 -a ! -c /dev/fakegpu3 && echo gone", "gone"),
    "network-cut": ("cat /sys/class/net/eth0/operstate", "down"),
}


@pytest.mark.full  # over 5 s
def test_faults_are_seen_on_their_nodes_alone_and_heal(cluster: Sandbox) -> None:
    """Each shows on its node only, and is gone after heal."""

    def shows(fault: str, node: str) -> bool:
        command, shown = SEEN_BY_A_USER[fault]
        return shown in cluster.run(["sh", "-c", command], node=node, check=False).stdout

    nodes = [f"n{number}" for number in range(1, 6)]
    where = dict(zip(sorted(SEEN_BY_A_USER), itertools.cycle(nodes), strict=False))
    for fault, node in where.items():
        cluster.break_node(node, fault)
    for node in nodes:
        assert set(faults_of(cluster, node)) == {fault for fault, its in where.items() if its == node}
    for fault, node in where.items():
        assert [each for each in nodes if shows(fault, each)] == [node], fault
    for node in nodes:
        assert set(cluster.heal_node(node, resume=True)) == {fault for fault, its in where.items() if its == node}
        assert faults_of(cluster, node) == ()
    for fault, node in where.items():
        assert not shows(fault, node), fault
    assert sorted(cluster.run(["srun", "-N5", "hostname"]).stdout.split()) == nodes


@pytest.mark.full  # over 5 s
def test_memlock_low_is_what_the_prolog_inherits(cluster: Sandbox) -> None:
    """slurmd's soft limit is 64 KiB, its hard limit untouched, and heal restores what `up` had."""
    pid = machine.find(cluster.directory)["n2"]
    (slurmd,) = machine.children(pid, "slurmd")
    before = machine.limits(slurmd)["memlock"]
    cluster.break_node("n2", "memlock-low")
    assert (machine.limits(slurmd)["memlock"], faults_of(cluster, "n2")) == ((65536, before[1]), ("memlock-low",))
    cluster.heal_node("n2")
    assert machine.limits(slurmd)["memlock"] == before


@pytest.mark.full  # over 5 s
def test_a_program_outlives_its_slurmd(cluster: Sandbox) -> None:
    """slurmd-dead ends slurmd alone: the step runs on; after heal the node takes work."""
    pid = machine.find(cluster.directory)["n2"]
    program = ["pgrep", "-f", "sleep 9877$"]
    with cluster.popen(["srun", "-w", "n2", "sleep", "9877"], stderr=subprocess.DEVNULL) as step:
        try:
            until(lambda: cluster.run(program, node="n2", check=False).returncode == 0)
            running = cluster.run(program, node="n2").stdout
            cluster.break_node("n2", "slurmd-dead")
            until(lambda: faults_of(cluster, "n2") == ("slurmd-dead",))
            time.sleep(0.5)  # time for a wrong end of the program; a shorter time would not fail the test
            assert cluster.run(program, node="n2").stdout == running
            assert machine.find(cluster.directory)["n2"] == pid
        finally:
            cluster.heal_node("n2")
            os.killpg(step.pid, signal.SIGKILL)
    cluster.run(["scancel", "-u", "alice"], user="root")
    assert cluster.run(["srun", "-w", "n2", "hostname"]).stdout == "n2\n"


@pytest.mark.full  # over 5 s
def test_a_dead_node_comes_back_empty(cluster: Sandbox) -> None:
    """node-dead ends all of the machine. heal starts an empty one with the same name and address."""
    cluster.run(["touch", "/tmp/before"], node="n2")
    cluster.break_node("n2", "node-dead")
    assert faults_of(cluster, "n2") == ("node-dead",)
    with pytest.raises(SlurmPluginError, match="n2 is dead"):
        cluster.run(["true"], node="n2")
    assert cluster.run(["ping", "-c1", "-W1", "n2"], check=False).returncode != 0
    cluster.heal_node("n2", resume=True)
    assert cluster.run(["sh", "-c", "test -e /tmp/before"], node="n2", check=False).returncode == 1
    assert cluster.run(["srun", "-w", "n2", "hostname"]).stdout == "n2\n"


@pytest.mark.full  # over 5 s
def test_a_node_whose_mount_hangs_heals_and_dies_like_any_other(cluster: Sandbox) -> None:
    """Unkillable processes do not keep their node alive. A fault that was made twice is undone by one heal."""
    ask = """for i in $(seq 50); do  # until one asks before it is killed: each has more time to than the one before
        stat --file-system /scratch >/dev/null 2>&1 & sleep $((i / 10)).$((i % 10)); kill -9 $!; sleep 0.1
        case $(ps -o stat= $!) in D*) echo stuck; break ;; esac
    done"""
    for undo in ("heal", "die"):
        cluster.break_node("n2", "hung-mount")
        cluster.break_node("n2", "hung-mount")
        assert cluster.run(["sh", "-c", ask], node="n2", timeout=HANG_S).stdout == "stuck\n"
        if undo == "die":
            cluster.break_node("n2", "node-dead")
        cluster.heal_node("n2", resume=True)
        assert faults_of(cluster, "n2") == ()
        assert cluster.run(["stat", "--file-system", "--format=%T", "/scratch"], node="n2").stdout == "tmpfs\n"
        until(lambda: " stat " not in cluster.run(["ps", "-eo", "args"], node="n2").stdout)


@pytest.mark.full  # over 5 s
def test_heal_leaves_a_drain_to_the_admin(cluster: Sandbox) -> None:
    """A drained node stays drained after heal. `resume` must be requested."""
    cluster.run(["scontrol", "update", "nodename=n2", "state=drain", "reason=test"], user="root")
    cluster.break_node("n2", "shm-full")
    cluster.heal_node("n2")
    assert cluster.states()["n2"] == "drained"
    cluster.heal_node("n2", resume=True)
    assert cluster.states()["n2"] == "idle"


@pytest.mark.full  # over 5 s
def test_two_faults_heal_together(cluster: Sandbox) -> None:
    """heal undoes all faults of a node, in whatever order they were made."""
    for fault in ("gpu-missing", "slurmd-dead", "dns", "network-cut"):
        cluster.break_node("n5", fault)
    until(lambda: set(faults_of(cluster, "n5")) == {"dns", "gpu-missing", "slurmd-dead", "network-cut"})
    cluster.heal_node("n5", resume=True)
    assert faults_of(cluster, "n5") == ()
    assert cluster.run(["srun", "-w", "n5", "hostname"]).stdout == "n5\n"


@pytest.mark.full  # over 5 s
def test_every_fault_is_proven_here() -> None:
    """Each fault in the registry has a test."""
    assert {*SEEN_BY_A_USER, "memlock-low", "slurmd-dead", "node-dead"} == set(FAULTS)


@pytest.mark.full  # over 5 s
def test_a_node_that_slurm_gave_up_is_resumed(cluster: Sandbox) -> None:
    """A cut node is `down*` after SlurmdTimeout. After heal and resume it takes work."""
    cluster.break_node("n4", "network-cut")
    until(lambda: cluster.states()["n4"] == "down*")
    cluster.heal_node("n4", resume=True)
    assert cluster.run(["srun", "-w", "n4", "hostname"]).stdout == "n4\n"
