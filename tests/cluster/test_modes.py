"""The modes that no program from outside judges, and what stands before a launch, on a real Slurm."""

import json
import subprocess
from collections.abc import Callable, Iterator

import pytest

from slurm_plugin.sandbox import Sandbox
from slurm_plugin.sandbox.machine import inside
from tests.cluster.jobs import OPEN_MPI, Job, submit, workdir

pytestmark = pytest.mark.cluster


def printed(job: Job) -> list[str]:
    """What the program itself printed, sorted."""
    return sorted(line for line in job.log.splitlines() if not line.startswith("[slurm_plugin]"))


def test_single_runs_the_command_as_it_is(cluster: Sandbox) -> None:
    """Once, on its node, in no step of ours."""
    command = "bash -c 'echo $(hostname) ${SLURM_STEP_ID-none} ${MASTER_ADDR-none} $0' it"
    job = submit(cluster, "single", mode="single", nodes=1, command=command)
    assert job.end() == "COMPLETED", job.log
    assert printed(job) in (["n1 none none it"], ["n1 -5 none it"])  # 26.05 numbers the batch step


def test_a_script_is_left_alone_and_told_everything(cluster: Sandbox) -> None:
    """Row C6: `export ...;` and `||` work in it, its own srun is untouched, and the hostfiles are those of the job."""
    text = """
    export MINE=1; false || echo "$MINE $MASTER_ADDR $WORLD_SIZE $SLOTS ${RANK-none} $HYDRA_IFACE"
    [ "$OMPI_MCA_orte_default_hostfile" = "$SLURM_PLUGIN_HOSTFILE" ] && cat "$SLURM_PLUGIN_HOSTFILE" "$HYDRA_HOST_FILE"
    srun --overlap -N2 -n2 bash -c 'echo step $(hostname) ${RANK-none} $MINE'
    exit 3
    """
    job = submit(cluster, "script", mode="script", command=text)
    assert (job.end(), job.exit_code) == ("FAILED", "3:0"), job.log
    hosts = ["n1 slots=4", "n1:4", "n2 slots=4", "n2:4"]
    assert printed(job)[: 1 + len(hosts)] == ["1 n1 2 4 none eth0", *hosts]
    assert "step n1 none 1" in job.log
    assert "step n2 none 1" in job.log


def test_a_port_that_is_taken_is_passed_over(cluster: Sandbox) -> None:
    """Something listens on the job's own port on its first node: every task is told another one, all the same."""
    first = submit(cluster, "ports", nodes=1, command="bash -c 'echo port $MASTER_PORT'")
    assert first.end() == "COMPLETED", first.log
    port = int(printed(first)[0].split()[1])
    taken = port + 1  # the next job's, or that of the one after it
    listen = (
        "import socket, time; sockets = [socket.create_server(('', port)) for port in range(%d, %d)];"
        " print('ready', flush=True); time.sleep(600)"
    )
    listener = cluster.popen(["/usr/bin/python3", "-c", listen % (taken, taken + 5)], node="n1", stdout=subprocess.PIPE)
    try:
        assert listener.stdout is not None
        assert listener.stdout.readline() == "ready\n"
        job = submit(cluster, "taken", nodes=2, command="bash -c 'echo port $MASTER_PORT $SLURM_PLUGIN_PORT'")
        assert job.end() == "COMPLETED", job.log
    finally:
        listener.kill()
        listener.wait()
    ((_, told, ours),) = {tuple(line.split()) for line in printed(job)}
    assert told == ours
    assert int(told) not in range(taken, taken + 5)


def test_a_job_that_another_jobs_program_submitted(cluster: Sandbox) -> None:
    """sbatch hands on that job's restart count and srun's variables: all nodes answer, ranks have their RANK."""
    directory = workdir(cluster, "chained")
    fields = {"name": "c", "mode": "pytorch", "nodes": 2, "output": "job.out", "retries": 1}
    (directory / "job.yaml").write_text(json.dumps({**fields, "command": "bash -c 'echo $RANK $SLURM_PLUGIN_RESTART'"}))
    outer = {
        "SLURM_RESTART_COUNT": "3",
        "SLURM_PLUGIN_LAUNCH": "5.3.0",
        "SLURM_UNBUFFEREDIO": "1",
        "SLURM_LABELIO": "1",
    }
    script = "cd /home/alice/chained && slurm-plugin render job.yaml >job.sh && sbatch --parsable job.sh"
    job = Job(cluster, int(cluster.run(["sh", "-c", script], env=outer).stdout), directory)
    assert job.end() == "COMPLETED", job.log
    assert printed(job) == ["0: 0 0", "1: 1 0"]  # labelled, as its user wished
    assert "[slurm_plugin] attempt 0 of job" in job.log
    assert "did not answer" not in job.log


@pytest.fixture
def hccn(cluster: Sandbox) -> Iterator[Callable[[str, str], None]]:
    """Writes a machine's /etc/hccn.conf; they are gone afterwards."""
    pids = {row.name: row.pid for row in cluster.status().machines if row.pid}

    def write(node: str, text: str) -> None:
        inside(pids[node], "/etc/hccn.conf").write_text(text, encoding="utf-8")

    try:
        yield write
    finally:
        for pid in pids.values():
            inside(pid, "/etc/hccn.conf").unlink(missing_ok=True)


SHOW = "echo $(hostname) $RANK_ID/$RANK_SIZE $ASCEND_DEVICE_ID $DEVICE_ID of ${ASCEND_RT_VISIBLE_DEVICES-} "


def test_ascend_has_a_rank_table(cluster: Sandbox, hccn: Callable[[str, str], None]) -> None:
    """One process a device, with the numbers that the table of all nodes gives it (rows B6, B7)."""
    for node in (1, 2):
        hccn(f"n{node}", "".join(f"address_{device}=10.1.{node}.{device}\n" for device in range(4)))
    command = f"bash -c '{SHOW} $RANK_TABLE_FILE $ASCEND_GLOBAL_LOG_LEVEL $ASCEND_SLOG_PRINT_TO_STDOUT'"
    job = submit(cluster, "ascend-table", mode="ascend", accelerators={"gpu": 2}, command=command)
    assert job.end() == "COMPLETED", job.log
    path = f"/home/alice/ascend-table/.slurm_plugin/{job.id}/jobstart_hccl.json"
    ranks = [f"n{rank // 2 + 1} {rank}/4 {rank % 2} {rank % 2} of 0,1 {path} 3 1" for rank in range(4)]
    assert printed(job) == ranks
    table = json.loads((job.directory / ".slurm_plugin" / str(job.id) / "jobstart_hccl.json").read_text())
    assert (table["status"], table["server_count"]) == ("completed", "2")
    assert [
        (server["server_id"], [(device["rank_id"], device["device_ip"]) for device in server["device"]])
        for server in table["server_list"]
    ] == [
        (address(cluster, f"n{node}"), [(str(2 * node - 2), f"10.1.{node}.0"), (str(2 * node - 1), f"10.1.{node}.1")])
        for node in (1, 2)
    ]


def address(box: Sandbox, node: str) -> str:
    """A machine's own address, as it resolves its name."""
    return box.run(["getent", "ahostsv4", node], node=node).stdout.split()[0]


def test_a_node_that_cannot_tell_its_devices_ends_the_attempt(
    cluster: Sandbox, hccn: Callable[[str, str], None]
) -> None:
    """No table, no program; the log names the node and what it lacks."""
    hccn("n1", "address_0=10.1.1.0\naddress_1=10.1.1.1\n")
    job = submit(cluster, "untold", mode="ascend", accelerators={"gpu": 2}, command="echo started")
    assert (job.end(), job.exit_code) == ("FAILED", "1:0"), job.log
    assert "started" not in printed(job)
    (said,) = job.lines("n2")
    assert said.startswith("[slurm_plugin] n2 npu-devices: failed: device 0: /etc/hccn.conf: No such file or directory")
    assert not (job.directory / ".slurm_plugin" / str(job.id) / "jobstart_hccl.json").exists()


def test_ascend_without_a_table_is_a_dynamic_cluster(cluster: Sandbox) -> None:
    """Workers on every device and one scheduler beside rank 0, which ends with them however long it would serve."""
    command = f"""bash -c '{SHOW} $MS_ROLE ${{MS_NODE_ID-none}} $MS_SCHED_HOST:$MS_SCHED_PORT $MS_WORKER_NUM
        [ $MS_ROLE = MS_WORKER ] || sleep 600; sleep 1'"""
    fields = {"accelerators": {"gpu": 2}, "ascend": {"table": "no"}, "command": command}
    job = submit(cluster, "dynamic", mode="ascend", **fields)
    assert job.end() == "COMPLETED", job.log
    lines = printed(job)
    port = lines[0].rsplit(":", 1)[1].split()[0]
    where = f"{address(cluster, 'n1')}:{port} 4"
    workers = [f"n{rank // 2 + 1} {rank}/4 {rank % 2} {rank % 2} of MS_WORKER {rank} {where}" for rank in range(4)]
    assert lines == sorted([*workers, f"n1 /4 of MS_SCHED none {where}"])
    assert cluster.run(["pgrep", "-u", "alice", "sleep"], node="n1", check=False).stdout == ""


def test_tensorflow_servers_end_with_the_workers(cluster: Sandbox) -> None:
    """Four roles on four nodes: TF_CONFIG in each, and a server that would serve for ever ends the job well."""
    command = (
        """bash -c 'echo "$(hostname) $TF_CONFIG"; case $TF_CONFIG in *\\"type\\":\\ \\"ps\\"*) sleep 600 ;; esac'"""
    )
    fields = {"accelerators": {}, "tensorflow": {"ps": 1, "chief": "yes"}, "command": command}
    job = submit(cluster, "tf", mode="tensorflow", nodes=4, **fields)
    assert job.end() == "COMPLETED", job.log
    told = [json.loads(line.partition(" ")[2]) for line in printed(job)]
    port = told[0]["cluster"]["chief"][0].partition(":")[2]
    cluster_of_job = {"chief": [f"n1:{port}"], "worker": [f"n2:{port}", f"n3:{port}"], "ps": [f"n4:{port}"]}
    assert [config["cluster"] for config in told] == [cluster_of_job] * 4
    kinds = [(config["task"]["type"], config["task"]["index"]) for config in told]
    assert kinds == [("chief", 0), ("worker", 0), ("worker", 1), ("ps", 0)]


HOOK = """
echo "hook on $(hostname) sees $GREETING"
export ADDED="it's $(hostname)" GREETING="$GREETING again"
"""


@pytest.mark.parametrize("mode", ["single", "openmpi", "pytorch"])
def test_hooks_beside_the_program_run_once_a_node_and_change_its_environment(cluster: Sandbox, mode: str) -> None:
    """Row B8: before it, their output in the log, what they export is there in every task of that node."""
    nodes = 1 if mode == "single" else 2
    directory = workdir(cluster, f"hook-{mode}")
    (directory / "ma-pre-start.sh").write_text(HOOK)
    (directory / "program.sh").write_text('echo "program on $(hostname): $ADDED, $GREETING"\n')
    (directory / "job.yaml").write_text(
        json.dumps(
            {"name": "hook", "mode": mode, "nodes": nodes, "command": "bash program.sh", "output": "job.out",
             "env": {"GREETING": "hello", **OPEN_MPI}}
        )
    )  # fmt: skip
    said = cluster.run(["sh", "-c", f"cd /home/alice/hook-{mode} && exec slurm-plugin submit --json job.yaml"])
    job = Job(cluster, json.loads(said.stdout)["job"], directory)
    assert job.end() == "COMPLETED", job.log
    names = [f"n{node + 1}" for node in range(nodes)]
    assert printed(job) == [
        *(f"hook on {name} sees hello" for name in names),
        *(f"program on {name}: it's {name}, hello again" for name in names),
    ]
    for name in names:
        assert f"[slurm_plugin] {name} ma-pre-start.sh: ok: 2 variables changed: ADDED, GREETING" in job.log


def test_a_hook_that_fails_ends_the_attempt(cluster: Sandbox) -> None:
    """With its own exit code and a clear line; the program does not start."""
    directory = workdir(cluster, "hook-fails")
    (directory / "startup-hook.sh").write_text("[ $(hostname) = n1 ] || exit 5\nsleep 60\n")
    fields = {"name": "h", "mode": "pytorch", "nodes": 2, "command": "bash -c 'echo started'", "output": "job.out"}
    (directory / "job.yaml").write_text(json.dumps(fields))
    said = cluster.run(["sh", "-c", "cd /home/alice/hook-fails && exec slurm-plugin submit --json job.yaml"])
    job = Job(cluster, json.loads(said.stdout)["job"], directory)
    assert (job.end(), job.exit_code) == ("FAILED", "5:0"), job.log
    assert "started" not in printed(job)
    assert "[slurm_plugin] n2 startup-hook.sh: failed: exit code 5" in job.log
    assert job.attempts[-1]["phase"] == "hook"
    assert "error,exiting: attempt 0: a hook beside the program failed with exit code 5" in job.log


def test_an_environment_named_by_its_path_needs_no_activation(cluster: Sandbox) -> None:
    """Row B13: the commands of the conda environment are found by the program and by what it starts."""
    directory = workdir(cluster, "conda")
    for path in ("env/bin", "env/conda-meta"):
        (directory / path).mkdir(parents=True)
    (directory / "env/bin/python").symlink_to("/usr/bin/python3")
    tool = directory / "env/bin/its-own-tool"
    tool.write_text("#!/bin/sh\necho tool of $CONDA_PREFIX\n")
    tool.chmod(0o755)
    command = """env/bin/python -c 'import subprocess; subprocess.run(["its-own-tool"], check=True)'"""
    (directory / "job.yaml").write_text(
        json.dumps(
            {"name": "c", "mode": "pytorch", "nodes": 2, "launch": "task", "command": command, "output": "job.out"}
        )
    )
    said = cluster.run(["sh", "-c", "cd /home/alice/conda && exec slurm-plugin submit --json job.yaml"])
    job = Job(cluster, json.loads(said.stdout)["job"], directory)
    assert job.end() == "COMPLETED", job.log
    assert printed(job) == ["tool of /home/alice/conda/env"] * 2
