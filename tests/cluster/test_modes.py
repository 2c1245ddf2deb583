"""Modes that are tested with no external program, and steps before a launch, on a real Slurm."""

import json
import os
import signal
import subprocess

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster.jobs import OPEN_MPI, Job, printed, submit, workdir

pytestmark = pytest.mark.cluster


def test_single_runs_the_command_as_it_is(cluster: Sandbox) -> None:
    """Once, on its node, not in a step."""
    command = "bash -c 'echo $(hostname) ${SLURM_STEP_ID-none} ${MASTER_ADDR-none} $0' it"
    job = submit(cluster, "single", mode="single", nodes=1, command=command)
    assert job.end() == "COMPLETED", job.log
    assert printed(job) in (["n1 none none it"], ["n1 -5 none it"])  # 26.05 gives the batch step a number


def test_a_script_is_left_alone_and_told_everything(cluster: Sandbox) -> None:
    """`export ...;` and `||` work in it, its srun is not changed, and the hostfiles are those of the job."""
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


def test_variables_in_a_command_are_replaced_on_each_node(cluster: Sandbox) -> None:
    """In a torchrun line, in a variable of the first node alone, in bash's own variable. An unset one ends the job."""
    line = "--nnodes ${WORLD_SIZE} --nproc_per_node ${SLOTS} --node_rank $RANK"
    job = submit(cluster, "variables", command=f"echo {line} '$RANK' $$RANK")
    greeting = "a  'b' $(id)"
    step = submit(cluster, "variables-step", mode="openmpi", command='srun -N1 -n1 echo "$G" $$', env={"G": greeting})
    ours = submit(cluster, "variables-bash", command='bash -c "A=$RANK; echo rank $A"')
    unset = submit(cluster, "variables-unset", command="echo $NOBODY_SET_THIS", nodes=1)
    first = submit(cluster, "variables-first", mode="openmpi", command="srun echo $NOBODY_SET_THIS")
    assert job.end() == "COMPLETED", job.log
    wanted = [f"--nnodes 2 --nproc_per_node 4 --node_rank {rank} $RANK $RANK" for rank in (0, 1)]
    assert printed(job) == wanted
    assert ours.end() == "COMPLETED", ours.log
    assert printed(ours) == ["rank 0", "rank 1"]
    for each in (unset, first):
        assert (each.end(), each.exit_code) == ("FAILED", "2:0"), each.log
        assert "NOBODY_SET_THIS: the command names it, and it is not set on this node" in each.log
    assert step.end() == "COMPLETED", step.log
    assert printed(step) == [f"{greeting} $"]


def test_a_port_that_is_taken_is_passed_over(cluster: Sandbox) -> None:
    """A process listens on the job's port on its first node: every task gets the same other port."""
    first = submit(cluster, "ports", nodes=1, command="bash -c 'echo port $MASTER_PORT'")
    assert first.end() == "COMPLETED", first.log
    port = int(printed(first)[0].split()[1])
    taken = port + 1  # the port of the next job, or of the one after it
    listen = (
        "import socket, time; sockets = [socket.create_server(('', port)) for port in range(%d, %d)];"
        " print('ready', flush=True); time.sleep(9000)"
    )
    listener = cluster.popen(["/usr/bin/python3", "-c", listen % (taken, taken + 5)], node="n1", stdout=subprocess.PIPE)
    try:
        assert listener.stdout is not None
        assert listener.stdout.readline() == "ready\n"
        job = submit(cluster, "taken", nodes=2, command="bash -c 'echo port $MASTER_PORT $SLURM_PLUGIN_PORT'")
        assert job.end() == "COMPLETED", job.log
    finally:
        os.killpg(listener.pid, signal.SIGKILL)  # the listener, and the command that entered the machine
        listener.wait()
    ((_, told, ours),) = {tuple(line.split()) for line in printed(job)}
    assert told == ours
    assert int(told) not in range(taken, taken + 5)


def test_a_job_that_another_jobs_program_submitted(cluster: Sandbox) -> None:
    """sbatch passes that job's restart count and srun's variables on. All nodes answer, and ranks have their RANK."""
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
    assert printed(job) == ["0: 0 0", "1: 1 0"]  # with labels, as the spec requests
    assert "[slurm_plugin] attempt 0 of job" in job.log
    assert "did not answer" not in job.log


def test_tensorflow_servers_end_with_the_workers(cluster: Sandbox) -> None:
    """Servers need no nodes, but a core and 1 GB beside a task, without its GPU. They end with the workers."""
    command = """bash -c 'echo "$(hostname) $CUDA_VISIBLE_DEVICES $TF_CONFIG"
        case $TF_CONFIG in *\\"type\\":\\ \\"ps\\"*) touch up.$(hostname); sleep 9000 ;; esac
        until [ -e up.n1 ] && [ -e up.n2 ]; do sleep 0.1; done'"""
    fields = {"tensorflow": {"ps": 2, "chief": "yes"}, "command": command, "memory": "64MB"}
    job = submit(cluster, "tf", mode="tensorflow", nodes=2, accelerators={"gpu": 1}, **fields)
    asked = cluster.run(["squeue", "-h", f"-j{job.id}", "-o%D %C %m"]).stdout.split()
    assert job.end() == "COMPLETED", job.log
    assert asked == ["2", "4", "1088M"]
    told = [(*line.split(" ", 2)[:2], json.loads(line.split(" ", 2)[2])) for line in printed(job)]
    port = int(told[0][2]["cluster"]["chief"][0].partition(":")[2])
    cluster_of_job = {"chief": [f"n1:{port}"], "worker": [f"n2:{port}"], "ps": [f"n1:{port + 1}", f"n2:{port + 1}"]}
    assert [config["cluster"] for _, _, config in told] == [cluster_of_job] * 4
    who = sorted((name, config["task"]["type"], config["task"]["index"], gpu) for name, gpu, config in told)
    assert who == [("n1", "chief", 0, "0"), ("n1", "ps", 0, "-1"), ("n2", "ps", 1, "-1"), ("n2", "worker", 0, "0")]


HOOK = """
echo "hook on $(hostname) sees $GREETING"
export ADDED="it's $(hostname)" GREETING="$GREETING again"
"""


def test_hooks_beside_the_program_run_once_a_node_and_change_its_environment(cluster: Sandbox) -> None:
    """Before it, with their output in the log. Every task of a node has the variables that its hooks export."""
    where = {"single": ["n5"], "openmpi": ["n1", "n2"], "pytorch": ["n3", "n4"]}
    jobs = {}
    for mode, names in where.items():
        directory = workdir(cluster, f"hook-{mode}")
        (directory / "ma-pre-start.sh").write_text(HOOK)
        (directory / "program.sh").write_text('echo "program on $(hostname): $ADDED, $GREETING"\n')
        fields = {"nodes": len(names), "nodelist": ",".join(names), "accelerators": None}
        fields["env"] = {"GREETING": "hello", **OPEN_MPI}
        jobs[mode] = submit(cluster, f"hook-{mode}", made=True, mode=mode, command="bash program.sh", **fields)
    for mode, job in jobs.items():
        assert job.end() == "COMPLETED", job.log
        said = [line for line in printed(job) if "PRTE ERROR: " not in line]  # Open MPI 5 prints it
        assert said == [
            *(f"hook on {name} sees hello" for name in where[mode]),
            *(f"program on {name}: it's {name}, hello again" for name in where[mode]),
        ]
        for name in where[mode]:
            assert f"[slurm_plugin] {name} ma-pre-start.sh: ok: 2 variables changed: ADDED, GREETING" in job.log


def test_a_hook_that_fails_ends_the_attempt(cluster: Sandbox) -> None:
    """With the hook's exit code and a message. The program does not start."""
    directory = workdir(cluster, "hook-fails")
    (directory / "startup-hook.sh").write_text("[ $(hostname) = n1 ] || exit 5\nsleep 9000\n")
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
    """The program and its children find the commands of the conda environment."""
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
