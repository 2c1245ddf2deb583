"""A sandbox starts, starts again after any crash, and leaves nothing behind."""

import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from slurm_plugin.errors import SlurmPluginError, UsageError
from slurm_plugin.sandbox import Sandbox, daemons, machine, network
from tests.cluster.command import COMMAND
from tests.cluster.conftest import new_directory
from tests.waiting import HANG_S, until

pytestmark = pytest.mark.cluster


@pytest.fixture
def second(sandbox: Sandbox) -> Iterator[Sandbox]:
    """Yield another sandbox beside the session's. It is not up."""
    box = Sandbox(new_directory())
    yield box
    box.down()


def mounts(box: Sandbox) -> list[str]:
    """Return the host's mounts of this sandbox."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line for line in lines if str(box.directory) in line]


def links() -> set[str]:
    """Return the host's network interfaces."""
    return {path.name for path in Path("/sys/class/net").iterdir()}


def namespaces(pids: Iterable[object]) -> set[str]:
    """Return the namespaces of these processes."""
    found = set()
    for link in (link for pid in pids for link in Path(f"/proc/{pid}/ns").glob("*")):
        with suppress(OSError):  # it ended meanwhile
            found.add(str(link.readlink()))
    return found


def processes() -> dict[tuple[str, str], set[str]]:
    """Return the namespaces of every process of this host, by its pid and start time. No later process has both."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            started = (path / "stat").read_text().rpartition(")")[2].split()[19]
            found[path.name, started] = namespaces([path.name])
    return found


def commands(found: Iterable[tuple[str, str]]) -> list[str]:
    """Return the command lines of processes."""
    return [Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode() for pid, _ in found]


def state(box: Sandbox, job: str) -> str:
    """Return Slurm's state of a job."""
    return box.run(["squeue", "-h", "-j", job, "-o", "%T"]).stdout.strip()


def test_up_beside_another_then_down_leaves_nothing(cluster: Sandbox, second: Sandbox) -> None:
    """A second sandbox starts beside the first. Its `down` leaves no trace, and does not change the first."""
    first = machine.find(cluster.directory)
    assert second.up(2, 1)
    assert second.up(2, 1) is False
    with pytest.raises(SlurmPluginError, match="2 nodes x 1 GPUs"):
        second.up(3, 1)
    assert sorted(second.run(["srun", "-N2", "hostname"]).stdout.split()) == ["n1", "n2"]
    ours, theirs = (
        network.Network(f"{box.status().machines[0].address}/24", strict=False) for box in (cluster, second)
    )
    assert not ours.overlaps(theirs)
    own = namespaces(machine.find(second.directory).values()) - namespaces(["self", *first.values()])
    assert {"net", "uts", "mnt", "pid", "ipc"} <= {name.partition(":")[0] for name in own}
    # The kernel reuses the numbers of namespaces, so compare processes.
    inside = {process for process, spaces in processes().items() if spaces & own}
    assert len(inside) > len(machine.find(second.directory))
    link = network.host_link(second.directory)
    assert link in links()
    assert second.down()
    assert not second.directory.exists()
    assert not machine.find(second.directory)
    assert not mounts(second)
    assert link not in links()
    until(lambda: not inside & processes().keys(), lambda: f"the end of {commands(inside & processes().keys())}")
    assert machine.find(cluster.directory) == first
    assert second.down() is False


# An `up` that stops forever when these machines run: before any daemon, or before all nodes are idle.
STOPS = """
import sys, time
from pathlib import Path
from slurm_plugin.sandbox import Sandbox, daemons, machine

most, start, begun = int(sys.argv[2]), machine.start, []


def stopping(*given):
    begun.append(given)
    return start(*given) if len(begun) <= most else time.sleep(9999)


machine.start = stopping
daemons.wait_until_ready = lambda *given, **more: time.sleep(9999)
Sandbox(Path(sys.argv[1])).up(4)
"""


@pytest.mark.full  # 6 s
@pytest.mark.parametrize("machines", [1, 3, 5])
def test_a_killed_up_is_cleaned_up_by_the_next(second: Sandbox, machines: int) -> None:
    """`up` is killed when some machines run: status reports that it is not up, and the next `up` works."""
    with subprocess.Popen([sys.executable, "-c", STOPS, str(second.directory), str(machines)]) as process:
        try:
            until(lambda: len(machine.find(second.directory)) == machines)
        finally:
            process.kill()
    left = set(machine.find(second.directory).values())
    assert len(left) == machines
    assert not second.status().up
    assert second.up(2, 0)
    assert not left & set(machine.find(second.directory).values())
    assert second.run(["srun", "-N2", "true"]).returncode == 0


@pytest.mark.full  # over 5 s
def test_a_stopped_controller_is_restarted_with_what_was_there(second: Sandbox) -> None:
    """`up` rebuilds nothing that has homes, with another number of nodes or the same. `restart` starts slurmctld or its
    machine again, with the same jobs, homes and configuration.
    """
    second.up(2, 1)
    (second.home("alice") / "precious").touch()
    job = second.run(["sbatch", "--parsable", "-N1", "--wrap", "sleep 3000"]).stdout.strip()
    until(lambda: state(second, job) == "RUNNING")
    mine = "# mine\n"
    with (second.directory / "etc/slurm/slurm.conf").open("a") as file:
        file.write(mine)
    for dead in ("slurmctld", "machine"):
        ctl = machine.find(second.directory)["ctl"]
        if dead == "machine":
            machine.end(ctl)
        else:
            daemons.stop(ctl, "slurmctld")
        for nodes in (1, 2):
            with pytest.raises(
                SlurmPluginError, match=r"its homes and configuration stay\n.*sandbox --dir .* restart\n"
            ):
                second.up(nodes, 1)
        assert second.restart() == ("ctl",)
        assert second.restart() == ()
        assert second.run(["srun", "-n2", "-N2", "--overcommit", "true"]).returncode == 0, dead
        assert state(second, job) == "RUNNING", dead
    assert (second.home("alice") / "precious").exists()
    assert (second.directory / "etc/slurm/slurm.conf").read_text().endswith(mine)


@pytest.mark.full  # over 5 s
def test_a_node_is_restarted(second: Sandbox) -> None:
    """Its slurmd is restarted, and programs there run on; or its machine, if that is dead."""
    second.up(1, 0)
    job = second.run(["sbatch", "--parsable", "--wrap", "sleep 3000"]).stdout.strip()
    until(lambda: state(second, job) == "RUNNING")
    (before,) = machine.children(machine.find(second.directory)["n1"], "slurmd")
    assert second.restart(["n1"]) == ("n1",)
    (after,) = machine.children(machine.find(second.directory)["n1"], "slurmd")
    assert before != after
    assert state(second, job) == "RUNNING"
    second.run(["scancel", job])
    machine.end(machine.find(second.directory)["n1"])
    assert second.restart() == ("n1",)
    assert second.run(["srun", "hostname"]).stdout == "n1\n"
    with pytest.raises(UsageError, match="no machine 'n2' in the sandbox: ctl and n1 to n1 are accepted"):
        second.restart(["n2"])


def test_an_up_that_fails_says_why_and_leaves_nothing(second: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes are not idle in time: an error that quotes a log, no machine and no directory."""
    monkeypatch.setattr(daemons, "READY_DEADLINE_S", -1.0)
    monkeypatch.setattr(daemons, "start_slurmd", lambda *_: None)
    with pytest.raises(SlurmPluginError, match=r"(?s)n1 is unknown.*ends with"):
        second.up(2, 0)
    assert not machine.find(second.directory)
    assert not second.directory.exists()


def test_a_private_umask_changes_nothing(second: Sandbox) -> None:
    """With root's umask of 077 the users of the sandbox still have access."""
    done = subprocess.run(
        [*COMMAND, str(second.directory), "up", "--nodes", "1"],
        umask=0o077, capture_output=True, text=True, timeout=HANG_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert second.run(["srun", "sh", "-c", "slurm-plugin --version; umask"]).stdout.splitlines()[1] == "0022"


def test_a_directory_of_someone_else_is_refused(tmp_path: Path) -> None:
    """up and down do not touch a directory that contains something else."""
    (tmp_path / "precious").touch()
    with pytest.raises(UsageError, match="holds no sandbox"):
        Sandbox(tmp_path)
    assert (tmp_path / "precious").exists()
