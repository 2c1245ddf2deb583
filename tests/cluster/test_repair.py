"""The site's steps of repair on a real Slurm."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_plugin.sandbox import Sandbox, daemons, machine
from tests.cluster.etc import Etc
from tests.cluster.jobs import reasons
from tests.cluster.looks import PASSES, forget, look, look_until
from tests.cluster.sites import deploy
from tests.cluster.syslog import Syslog
from tests.waiting import until

pytestmark = pytest.mark.cluster

LOST_GPU = "slurm_plugin: gpu-check: 3 of 4 GPUs"


@pytest.fixture
def etc(cluster: Sandbox, tmp_path: Path) -> Iterator[Etc]:
    """Yield /etc/slurm of all machines. No node has state before and after the test."""
    forget_everything(cluster)
    etc = Etc(cluster, tmp_path / "etc")
    yield etc
    etc.put_back()
    forget_everything(cluster)


def forget_everything(box: Sandbox) -> None:
    """Remove the nodes' state, also what their Comment says of drains that other tests made."""
    for node in ("n2", "n3"):
        box.run(["scontrol", "update", f"nodename={node}", "comment="], user="root")
    forget(box)


def boot(box: Sandbox, node: str) -> None:
    """Do what a boot does after RebootProgram has run: root's records are gone, and slurmd says that it has booted."""
    until(lambda: box.run(["ls", "/run/rebooted"], node=node, check=False).returncode == 0, "RebootProgram")
    box.run(["rm", "-rf", "/run/rebooted", "/run/slurm_plugin/state"], user="root", node=node)
    daemons.stop(machine.find(box.directory)[node], "slurmd")
    box.run(["slurmd", "-b"], user="root", node=node)
    until(lambda: box.states()[node] == "drained", lambda: str(box.states()))


@pytest.mark.full  # over 5 s
def test_a_reset_then_a_reboot(cluster: Sandbox, etc: Etc, tmp_path: Path) -> None:
    """The reset fails without nvidia-smi, the reboot helps: the node comes back by itself.

    Its neighbour is repaired only then. When the same item fails again, the node stays out.
    """
    etc.settings(RebootProgram=etc.program("reboot", "touch /run/rebooted"))
    etc.reconfigure()
    deploy(cluster, tmp_path, repeat_drains=3, repair={"gpu-check": ["gpu-reset", "reboot", "report"]})
    log = Syslog(cluster)
    for node in ("n2", "n3"):
        cluster.break_node(node, "gpu-missing")
        look(cluster, node)
    look_until(cluster, "n2", lambda: "n2: the gpu-reset ended: exit code 127\n" in log.of("n2"))
    look(cluster, "n3", 2)
    assert "repairs" not in cluster.run(["scontrol", "show", "node", "n3"]).stdout
    look_until(cluster, "n2", lambda: "n2: reboot for gpu-check" in log.of("n2"))
    assert reasons(cluster)["n2"].startswith(LOST_GPU)
    cluster.heal_node("n2")
    boot(cluster, "n2")
    look(cluster, "n2", PASSES + 2)
    assert reasons(cluster) == {"n3": LOST_GPU}
    history = cluster.run(["slurm-plugin", "nodes", "--history", "n2"]).stdout
    assert "repaired in 7 days: gpu-reset for gpu-check, reboot for gpu-check" in history

    look_until(cluster, "n3", lambda: "n3: gpu-reset for gpu-check" in log.of("n3"))
    cluster.break_node("n2", "gpu-missing")
    look(cluster, "n2", 2)
    again = "gpu-check again within 7 days of a repair"
    assert reasons(cluster)["n2"] == f"slurm_plugin: repeat: {again}; gpu-check: 3 of 4 GPUs"
