"""A sandbox comes up, comes up again after any crash, and leaves nothing behind."""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from slurm_plugin.errors import SlurmPluginError, UsageError
from slurm_plugin.sandbox import Sandbox, build, machine, network
from tests.cluster.command import COMMAND, until

pytestmark = pytest.mark.cluster


@pytest.fixture
def second(sandbox: Sandbox) -> Iterator[Sandbox]:
    """Another sandbox, not up, beside the session's."""
    box = Sandbox(Path(f"/var/tmp/slurm_plugin-tests-{os.getpid()}b"))
    yield box
    box.down()


def mounts_and_links() -> tuple[set[str], set[str]]:
    """What stands on the host; another sandbox may come and go beside these tests."""
    mounts = {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()}
    return mounts, {path.name for path in Path("/sys/class/net").iterdir()}


def namespaces() -> set[str]:
    """The namespaces of every process of this host."""
    found = set()
    for link in Path("/proc").glob("[0-9]*/ns/*"):
        with suppress(OSError):  # it ended while we looked
            found.add(str(link.readlink()))
    return found


def test_up_beside_another_then_down_leaves_nothing(cluster: Sandbox, second: Sandbox) -> None:
    """A second sandbox comes up beside the first in under 15 s; its `down` leaves no trace and the first untouched."""
    before = mounts_and_links(), namespaces()
    first = machine.find(cluster.directory)
    begin = time.monotonic()
    assert second.up(2, 1)
    assert time.monotonic() - begin < 15
    assert second.up(2, 1) is False
    with pytest.raises(SlurmPluginError, match="2 nodes x 1 GPUs"):
        second.up(3, 1)
    assert sorted(second.run(["srun", "-N2", "hostname"]).stdout.split()) == ["n1", "n2"]
    ours, theirs = (
        network.Network(f"{box.status().machines[0].address}/24", strict=False) for box in (cluster, second)
    )
    assert not ours.overlaps(theirs)
    added = namespaces() - before[1]
    assert {"net", "uts", "mnt", "pid", "ipc"} <= {name.partition(":")[0] for name in added}
    assert second.down()
    assert not second.directory.exists()
    assert not machine.find(second.directory)
    mounts, links = mounts_and_links()
    assert not mounts - before[0][0]
    assert not {name for name in links - before[0][1] if not name.startswith("sp")}
    assert network.host_link(second.directory) not in links
    until(lambda: not added & namespaces(), 5)
    assert machine.find(cluster.directory) == first
    assert second.down() is False


@pytest.mark.parametrize("machines", [1, 3, 5])
def test_a_killed_up_is_cleaned_up_by_the_next(second: Sandbox, machines: int) -> None:
    """`up` killed when some machines stand: status says it is not up, and the next `up` works."""
    with subprocess.Popen(
        [*COMMAND, str(second.directory), "up", "--nodes", "4"], stdout=subprocess.DEVNULL
    ) as process:
        until(lambda: len(machine.find(second.directory)) >= machines)
        process.kill()
    left = set(machine.find(second.directory).values())
    assert left
    assert not second.status().up
    assert second.up(2, 0)
    assert not left & set(machine.find(second.directory).values())
    assert second.run(["srun", "-N2", "true"]).returncode == 0


def test_a_killed_controller_is_started_anew(second: Sandbox) -> None:
    """`up` on a sandbox whose controller machine has died builds it again."""
    second.up(1, 0)
    machine.end(machine.find(second.directory)["ctl"])
    assert not second.status().up
    assert second.up(1, 0)
    assert second.run(["srun", "hostname"]).stdout == "n1\n"


def test_an_up_that_fails_says_why_and_leaves_nothing(second: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes that are not idle in time: an error that quotes a log, no machine and no directory."""
    monkeypatch.setattr(build, "READY_DEADLINE_S", -1.0)
    monkeypatch.setattr(build, "start_slurmd", lambda *_: None)
    with pytest.raises(SlurmPluginError, match=r"(?s)n1 is unknown.*ends with"):
        second.up(2, 0)
    assert not machine.find(second.directory)
    assert not second.directory.exists()


def test_a_private_umask_changes_nothing(second: Sandbox) -> None:
    """root's umask of 077 does not lock the users of the sandbox out of it."""
    done = subprocess.run(
        [*COMMAND, str(second.directory), "up", "--nodes", "1"],
        umask=0o077, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert second.run(["srun", "sh", "-c", "slurm-plugin --version; umask"]).stdout.splitlines()[1] == "0022"


def test_a_directory_of_someone_else_is_refused(tmp_path: Path) -> None:
    """up and down leave alone a directory that holds something else."""
    (tmp_path / "precious").touch()
    with pytest.raises(UsageError, match="holds no sandbox"):
        Sandbox(tmp_path)
    assert (tmp_path / "precious").exists()
