"""The sandbox is a real cluster: separate hosts, a site's permissions, users' jobs, and slurm_plugin itself."""

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from slurm_plugin.errors import UsageError
from slurm_plugin.sandbox import Sandbox, machine
from tests.cluster.command import COMMAND
from tests.waiting import HANG_S, until

pytestmark = pytest.mark.cluster


def test_a_step_runs_on_every_node_as_an_ordinary_user(cluster: Sandbox) -> None:
    """srun over all nodes reaches each machine once, and the tasks are alice's."""
    said = cluster.run(["srun", "-N5", "sh", "-c", "echo $(hostname) $(id -un) $PWD"]).stdout
    assert sorted(said.splitlines()) == [f"n{i} alice /home/alice" for i in range(1, 6)]


def test_a_batch_job_gets_gpus_and_writes_to_the_shared_home(cluster: Sandbox) -> None:
    """A job's output file is in its user's home, visible on the host, with the GPUs that Slurm gave."""
    script = "srun sh -c 'echo $(hostname) $CUDA_VISIBLE_DEVICES'"
    cluster.run(["sbatch", "--wait", "-N2", "--gres=gpu:2", "-o", "out.txt", "--wrap", script])
    out = cluster.home("alice") / "out.txt"
    assert len(out.read_text().splitlines()) == 2
    assert {line.split()[1] for line in out.read_text().splitlines()} == {"0,1"}
    assert out.stat().st_uid == 20001


def test_mpirun_through_a_hostfile_spans_the_nodes(cluster: Sandbox) -> None:
    """Open MPI's mpirun starts one rank on each of four nodes, and the ranks find each other."""
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


@pytest.mark.full  # over 5 s
def test_the_example_for_pytorch_runs_as_it_is(cluster: Sandbox) -> None:
    """`python` exists, with the packages of the venv that ran `up`."""
    if cluster.run(["python", "-c", "import torch"], check=False).returncode != 0:
        pytest.skip("this root's python has no PyTorch")
    make = "mkdir sandbox-hello && cd sandbox-hello && slurm-plugin example hello.py >hello.py"
    done = cluster.run(["sh", "-c", f"{make} && slurm-plugin example pytorch-hello | slurm-plugin submit --wait -"])
    (log,) = (cluster.home("alice") / "sandbox-hello").glob("pytorch-hello-*.out")
    assert "COMPLETED" in done.stderr
    for rank in range(4):
        assert f"rank {rank} of 4 on n{1 + rank // 2}: sum of ranks 6" in log.read_text(), rank


def test_the_host_talks_to_it_with_the_environment(cluster: Sandbox) -> None:
    """With the output of `sandbox env`, the host's own commands reach this sandbox."""
    environ = os.environ | cluster.environment()
    done = subprocess.run(
        ["srun", "-N2", "-D", "/tmp", "hostname"],
        env=environ,
        cwd="/tmp",
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert (done.returncode, len(set(done.stdout.split()))) == (0, 2), done.stderr


def test_each_machine_is_a_machine_of_its_own(cluster: Sandbox) -> None:
    """A file, a process and a name of one node are not visible on another node or the host."""
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
    """Users, SlurmUser and root have the permissions of a real site, and no more."""
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
    """slurm-plugin works in a machine for alice, wherever this checkout is."""
    assert cluster.run(["slurm-plugin", "--version"], node="n2").stdout.startswith("slurm-plugin")


def test_the_hooks_are_what_an_admin_deploys(cluster: Sandbox) -> None:
    """slurmd runs the prolog of the rendered site, at its standard path."""
    text = cluster.run(["scontrol", "show", "config"]).stdout
    assert re.search(r"^Prolog\s*= /etc/slurm/slurm_plugin/hooks/prolog$", text, re.MULTILINE)
    compiled = json.loads(cluster.run(["cat", "/etc/slurm/slurm_plugin/compiled.json"], node="n1").stdout)
    assert compiled["prechecks"]["gpu-check"] == {"device": "/dev/fakegpu%d", "count": 4, "tool": None, "nvml": True}


def test_syslog_of_a_node_is_kept(cluster: Sandbox) -> None:
    """A message to syslog on a node is in that node's file."""
    cluster.run(["logger", "-t", "hook", "hello there"], node="n4")
    log = cluster.directory / "log/n4.syslog"
    until(lambda: "hook: hello there" in log.read_text())


def test_an_orphan_is_reaped(cluster: Sandbox) -> None:
    """A process whose parent has ended leaves no zombie on its node."""
    cluster.run(["sh", "-c", "(exec sleep 9753 >/dev/null 2>&1 &) ; true"], node="n1")
    pid = machine.find(cluster.directory)["n1"]
    (orphan,) = until(lambda: machine.children(pid, "sleep"), "the orphan")
    os.kill(orphan, signal.SIGTERM)
    until(lambda: not Path(f"/proc/{orphan}").exists(), "the end of the orphan, which is not to stay as a zombie")


def test_run_passes_exit_code_and_input_through(cluster: Sandbox) -> None:
    """`sandbox run` passes the command's input, output and exit code through."""
    done = subprocess.run(
        [*COMMAND, str(cluster.directory), "run", "--node", "n2", "--user", "bob", "sh", "-c", "cat; id -un; exit 7"],
        input="text\n", capture_output=True, text=True, timeout=HANG_S, check=False,
    )  # fmt: skip
    assert (done.stdout, done.returncode) == ("text\nbob\n", 7)


def test_a_machine_ignores_no_signal(cluster: Sandbox) -> None:
    """A caller in the background of a shell ignores SIGINT and SIGQUIT; slurmd and its jobs do not."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGQUIT)}
    try:
        found = cluster.run(["grep", "SigIgn", "/proc/self/status"]).stdout
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert found == "SigIgn:\t0000000000000000\n"


def test_a_late_command_is_killed(cluster: Sandbox) -> None:
    """A command that exceeds its time limit leaves no process on the node."""
    with pytest.raises(subprocess.TimeoutExpired):
        cluster.run(["sleep", "54321"], node="n3", timeout=0.5)
    until(lambda: "54321" not in cluster.run(["ps", "-eo", "args"], node="n3", user="root").stdout)


def test_unknown_names_are_refused_with_the_known_ones(cluster: Sandbox) -> None:
    """An unknown node, fault or user is a usage error that names the accepted ones."""
    with pytest.raises(UsageError, match="n1 to n5"):
        cluster.break_node("n9", "dns")
    with pytest.raises(UsageError, match="shm-full"):
        cluster.break_node("n1", "flood")
    with pytest.raises(UsageError, match="alice"):
        cluster.run(["true"], user="mallory")


def test_an_ordinary_user_is_told_what_to_do(cluster: Sandbox) -> None:
    """Without root: exit 3, and the command to run instead."""
    done = cluster.run(["slurm-plugin", "sandbox", "up"], check=False)
    assert done.returncode == 3
    assert "sudo" in done.stderr
