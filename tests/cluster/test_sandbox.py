"""The sandbox is a real cluster: its own hosts, a site's permissions, faults that come and go, nothing left behind."""

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from slurm_plugin.errors import SlurmPluginError, UsageError
from slurm_plugin.sandbox import Sandbox, machine
from slurm_plugin.sandbox.faults import FAULTS
from tests.cluster.command import COMMAND, until

pytestmark = pytest.mark.cluster


def faults_of(box: Sandbox, node: str) -> tuple[str, ...]:
    """The faults that status shows."""
    return next(row.faults for row in box.status().machines if row.name == node)


def test_a_step_runs_on_every_node_as_an_ordinary_user(cluster: Sandbox) -> None:
    """srun over all nodes reaches each machine once; the tasks are alice's."""
    said = cluster.run(["srun", "-N5", "sh", "-c", "echo $(hostname) $(id -un) $PWD"]).stdout
    assert sorted(said.splitlines()) == [f"n{i} alice /home/alice" for i in range(1, 6)]


def test_a_batch_job_gets_gpus_and_writes_to_the_shared_home(cluster: Sandbox) -> None:
    """A job's output file is in its user's home, seen by the host, with the GPUs that Slurm gave."""
    script = "srun sh -c 'echo $(hostname) $CUDA_VISIBLE_DEVICES'"
    cluster.run(["sbatch", "--wait", "-N2", "--gres=gpu:2", "-o", "out.txt", "--wrap", script])
    out = cluster.home("alice") / "out.txt"
    assert len(out.read_text().splitlines()) == 2
    assert {line.split()[1] for line in out.read_text().splitlines()} == {"0,1"}
    assert out.stat().st_uid == 20001


def test_mpirun_through_a_hostfile_spans_the_nodes(cluster: Sandbox) -> None:
    """Open MPI's mpirun starts one rank on each of four nodes and they see each other's world."""
    if cluster.run(["sh", "-c", "command -v mpirun"], check=False).returncode != 0:
        pytest.skip("mpirun is not installed")
    (cluster.home("alice") / "mpi.sh").write_text(
        "#!/bin/sh\nsrun hostname >hosts.txt\n"
        "mpirun --hostfile hosts.txt sh -c 'echo $(hostname) $OMPI_COMM_WORLD_RANK/$OMPI_COMM_WORLD_SIZE'\n"
    )
    cluster.run(["sbatch", "--wait", "-N4", "-n4", "-o", "mpi.txt", "mpi.sh"])
    lines = (cluster.home("alice") / "mpi.txt").read_text().split("\n")[:-1]
    assert {line.split()[1] for line in lines} == {"0/4", "1/4", "2/4", "3/4"}
    assert len({line.split()[0] for line in lines}) == 4


def test_the_host_talks_to_it_with_the_environment(cluster: Sandbox) -> None:
    """With what `sandbox env` prints, the host's own commands reach this sandbox."""
    environ = os.environ | cluster.environment()
    done = subprocess.run(
        ["srun", "-N2", "-D", "/tmp", "hostname"],
        env=environ,
        cwd="/tmp",
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert (done.returncode, len(set(done.stdout.split()))) == (0, 2), done.stderr


def test_each_machine_is_a_machine_of_its_own(cluster: Sandbox) -> None:
    """A file, a process and a name of one node are not another's, nor the host's."""
    cluster.run(["sh", "-c", "touch /tmp/mine /dev/shm/mine /cache/mine"], node="n1")
    assert cluster.run(["sh", "-c", "ls /tmp/mine /dev/shm/mine /cache/mine"], node="n2", check=False).stdout == ""
    assert not Path("/cache/mine").exists()
    pids = {kind: {Path(f"/proc/{row.pid}/ns/{kind}").readlink() for row in cluster.status().machines}
            for kind in ("net", "uts", "mnt", "pid", "ipc")}  # fmt: skip
    assert {kind: len(found) for kind, found in pids.items()} == dict.fromkeys(pids, 6)
    assert cluster.run(["cat", "/proc/1/comm"], node="n3").stdout.strip() == "python3"
    for hidden in ("/work", "/srv", "/root/.ssh", "/var/lib/dpkg"):
        assert not machine.inside(cluster.status().machines[1].pid or 0, hidden).exists()


def test_permissions_fail_where_a_site_s_would(cluster: Sandbox) -> None:
    """Users, SlurmUser and root may do what they may on a real site, and no more."""
    refused = [
        (["touch", "/etc/slurm/slurm.conf"], "alice"),
        (["ls", "/home/alice"], "bob"),
        (["ls", "/home/alice"], "slurm"),
        (["scontrol", "update", "nodename=n1", "state=drain", "reason=x"], "alice"),
        (["touch", "/var/spool/slurm_plugin/x"], "alice"),
        (["touch", "/usr/bin/x"], "root"),
    ]
    for argv, user in refused:
        assert cluster.run(argv, user=user, check=False).returncode != 0, (argv, user)
    cluster.run(["sh", "-c", "touch /var/spool/slurm_plugin/x && rm /var/spool/slurm_plugin/x"], user="slurm")
    pid = machine.find(cluster.directory)["ctl"]
    (slurmctld,) = machine.children(pid, "slurmctld")
    assert Path(f"/proc/{slurmctld}").stat().st_uid != 0


def test_slurm_plugin_runs_inside_for_an_ordinary_user(cluster: Sandbox) -> None:
    """Our own program works in a machine for alice, wherever this checkout stands."""
    assert cluster.run(["slurm-plugin", "--version"], node="n2").stdout.startswith("slurm-plugin")


def test_the_hooks_are_what_an_admin_deploys(cluster: Sandbox) -> None:
    """The prolog that slurmd runs is the rendered site's, at its standard path."""
    text = cluster.run(["scontrol", "show", "config"]).stdout
    assert re.search(r"^Prolog\s*= /etc/slurm/slurm_plugin/hooks/prolog$", text, re.MULTILINE)
    compiled = json.loads(cluster.run(["cat", "/etc/slurm/slurm_plugin/compiled.json"], node="n1").stdout)
    assert compiled["prechecks"]["gpu-check"] == {"device": "/dev/fakegpu%d", "count": 4, "tool": None, "nvml": True}


def test_syslog_of_a_node_is_kept(cluster: Sandbox) -> None:
    """What a program on a node sends to syslog is in that node's file."""
    cluster.run(["logger", "-t", "hook", "hello there"], node="n4")
    log = cluster.directory / "log/n4.syslog"
    until(lambda: "hook: hello there" in log.read_text(), 5)


def test_an_orphan_is_reaped(cluster: Sandbox) -> None:
    """A process whose parent has ended leaves no zombie on its node."""
    cluster.run(["sh", "-c", "(sleep 0.5 >/dev/null 2>&1 &) ; true"], node="n1")
    pid = machine.find(cluster.directory)["n1"]
    assert machine.children(pid, "sleep")
    time.sleep(0.8)
    states = [
        path.read_text().rpartition(")")[2].split() for path in Path("/proc").glob("[0-9]*/stat") if path.exists()
    ]
    assert not [state for state in states if state[1] == str(pid) and state[0] == "Z"]


def test_run_passes_exit_code_and_input_through(cluster: Sandbox) -> None:
    """`sandbox run` is the command itself: its input, its output, its exit code."""
    done = subprocess.run(
        [*COMMAND, str(cluster.directory), "run", "--node", "n2", "--user", "bob", "sh", "-c", "cat; id -un; exit 7"],
        input="text\n", capture_output=True, text=True, timeout=20, check=False,
    )  # fmt: skip
    assert (done.stdout, done.returncode) == ("text\nbob\n", 7)


def test_a_late_command_is_killed(cluster: Sandbox) -> None:
    """A command that passes its time limit leaves no process on the node."""
    with pytest.raises(subprocess.TimeoutExpired):
        cluster.run(["sleep", "54321"], node="n3", timeout=0.5)
    until(lambda: "54321" not in cluster.run(["ps", "-eo", "args"], node="n3", user="root").stdout, 3)


# fault -> (command run on the node as alice, what its output holds while the fault is there)
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


@pytest.mark.parametrize("fault", SEEN_BY_A_USER)
def test_a_fault_is_seen_on_its_node_alone_and_heals(cluster: Sandbox, fault: str) -> None:
    """The fault shows on its node, on no other, and is gone after heal."""
    command, shown = SEEN_BY_A_USER[fault]
    cluster.break_node("n2", fault)
    assert faults_of(cluster, "n2") == (fault,)
    assert shown in cluster.run(["sh", "-c", command], node="n2", check=False).stdout
    assert shown not in cluster.run(["sh", "-c", command], node="n3", check=False).stdout
    assert cluster.heal_node("n2", resume=True) == (fault,)
    assert faults_of(cluster, "n2") == ()
    assert shown not in cluster.run(["sh", "-c", command], node="n2", check=False).stdout
    assert cluster.run(["srun", "-w", "n2", "hostname"]).stdout == "n2\n"


def test_memlock_low_is_what_the_prolog_inherits(cluster: Sandbox) -> None:
    """slurmd's soft limit is 64 KiB, its hard limit untouched, and heal restores what `up` had."""
    pid = machine.find(cluster.directory)["n2"]
    (slurmd,) = machine.children(pid, "slurmd")
    before = machine.limits(slurmd)["memlock"]
    cluster.break_node("n2", "memlock-low")
    assert (machine.limits(slurmd)["memlock"], faults_of(cluster, "n2")) == ((65536, before[1]), ("memlock-low",))
    cluster.heal_node("n2")
    assert machine.limits(slurmd)["memlock"] == before


def test_a_program_outlives_its_slurmd(cluster: Sandbox) -> None:
    """slurmd-dead ends slurmd alone: the step runs on; after heal the node takes work."""
    pid = machine.find(cluster.directory)["n2"]
    program = ["pgrep", "-f", "sleep 77$"]
    with cluster.popen(["srun", "-w", "n2", "sleep", "77"], stderr=subprocess.DEVNULL) as step:
        try:
            until(lambda: cluster.run(program, node="n2", check=False).returncode == 0)
            running = cluster.run(program, node="n2").stdout
            cluster.break_node("n2", "slurmd-dead")
            until(lambda: faults_of(cluster, "n2") == ("slurmd-dead",), 3)
            time.sleep(0.5)
            assert cluster.run(program, node="n2").stdout == running
            assert machine.find(cluster.directory)["n2"] == pid
        finally:
            cluster.heal_node("n2")
            os.killpg(step.pid, signal.SIGKILL)
    cluster.run(["scancel", "-u", "alice"], user="root")
    assert cluster.run(["srun", "-w", "n2", "hostname"]).stdout == "n2\n"


def test_a_dead_node_comes_back_empty(cluster: Sandbox) -> None:
    """node-dead ends all of the machine; heal starts it anew with the same name and address, and nothing on it."""
    cluster.run(["touch", "/tmp/before"], node="n2")
    cluster.break_node("n2", "node-dead")
    assert faults_of(cluster, "n2") == ("node-dead",)
    with pytest.raises(SlurmPluginError, match="n2 is dead"):
        cluster.run(["true"], node="n2")
    assert cluster.run(["ping", "-c1", "-W1", "n2"], check=False).returncode != 0
    cluster.heal_node("n2", resume=True)
    assert cluster.run(["sh", "-c", "test -e /tmp/before"], node="n2", check=False).returncode == 1
    assert cluster.run(["srun", "-w", "n2", "hostname"]).stdout == "n2\n"


def test_a_node_whose_mount_hangs_heals_and_dies_like_any_other(cluster: Sandbox) -> None:
    """Processes that no signal ends do not keep their node alive; a fault that was made twice is healed at once."""
    ask = """for i in $(seq 100); do  # until one asks before it is killed
        stat --file-system /scratch >/dev/null 2>&1 & sleep 0.1; kill -9 $!; sleep 0.1
        case $(ps -o stat= $!) in D*) echo stuck; break ;; esac
    done"""
    for undo in ("heal", "die"):
        cluster.break_node("n2", "hung-mount")
        cluster.break_node("n2", "hung-mount")
        assert cluster.run(["sh", "-c", ask], node="n2").stdout == "stuck\n"
        if undo == "die":
            cluster.break_node("n2", "node-dead")
        cluster.heal_node("n2", resume=True)
        assert faults_of(cluster, "n2") == ()
        assert cluster.run(["stat", "--file-system", "--format=%T", "/scratch"], node="n2").stdout == "tmpfs\n"
        until(lambda: " stat " not in cluster.run(["ps", "-eo", "args"], node="n2").stdout)


def test_heal_leaves_a_drain_to_the_admin(cluster: Sandbox) -> None:
    """A drained node stays drained after heal; `resume` is asked for by name."""
    cluster.run(["scontrol", "update", "nodename=n2", "state=drain", "reason=test"], user="root")
    cluster.break_node("n2", "shm-full")
    cluster.heal_node("n2")
    assert cluster.states()["n2"] == "drained"
    cluster.heal_node("n2", resume=True)
    assert cluster.states()["n2"] == "idle"


def test_two_faults_heal_together(cluster: Sandbox) -> None:
    """heal undoes all that is wrong with a node, whatever the order it came in."""
    for fault in ("gpu-missing", "slurmd-dead", "dns", "network-cut"):
        cluster.break_node("n5", fault)
    until(lambda: set(faults_of(cluster, "n5")) == {"dns", "gpu-missing", "slurmd-dead", "network-cut"}, 3)
    cluster.heal_node("n5", resume=True)
    assert faults_of(cluster, "n5") == ()
    assert cluster.run(["srun", "-w", "n5", "hostname"]).stdout == "n5\n"


def test_every_fault_is_proven_here() -> None:
    """A fault that is added to the registry needs a test of its own."""
    assert {*SEEN_BY_A_USER, "memlock-low", "slurmd-dead", "node-dead"} == set(FAULTS)


def test_unknown_names_are_refused_with_the_known_ones(cluster: Sandbox) -> None:
    """A node, fault or user that is none is a usage error that names what is accepted."""
    with pytest.raises(UsageError, match="n1 to n5"):
        cluster.break_node("n9", "dns")
    with pytest.raises(UsageError, match="shm-full"):
        cluster.break_node("n1", "flood")
    with pytest.raises(UsageError, match="alice"):
        cluster.run(["true"], user="carol")


def test_a_node_that_slurm_gave_up_is_resumed(cluster: Sandbox) -> None:
    """A cut node is `down*` after SlurmdTimeout; once healed and resumed it takes work."""
    cluster.break_node("n4", "network-cut")
    until(lambda: cluster.states()["n4"] == "down*", 40)
    cluster.heal_node("n4", resume=True)
    assert cluster.run(["srun", "-w", "n4", "hostname"]).stdout == "n4\n"


def test_an_ordinary_user_is_told_what_to_do(cluster: Sandbox) -> None:
    """Without root: exit 3, and the command to run instead."""
    done = cluster.run(["slurm-plugin", "sandbox", "up"], check=False)
    assert done.returncode == 3
    assert "sudo" in done.stderr
