"""How programs are started, on a real Slurm: with real mpirun and torchrun, and what each process is told."""

import json
import os
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.sandbox import Sandbox
from slurm_plugin.sandbox.machine import inside
from tests.cluster.jobs import ALICE_UID, OPEN_MPI, Job, submit, workdir

pytestmark = pytest.mark.cluster

OTHER_ROOT = "SLURM_PLUGIN_TEST_ROOT" in os.environ
WITH_PYSLURM = Path(os.environ.get("SLURM_PLUGIN_TEST_ROOT", "/"), "opt/pyslurm").exists()
# That root has a Python and packages of its own; else this environment, as the sandbox's machines see it.
PYTHON = "/usr/bin/python3" if OTHER_ROOT else "/sandbox/venv/bin/python"
LIBUV = {"USE_LIBUV": "0"} if OTHER_ROOT else {}  # Debian's own PyTorch is built without it

RANKS = """
import json, os, subprocess
from mpi4py import MPI

comm = MPI.COMM_WORLD
everybody = comm.gather((comm.Get_rank(), os.uname().nodename), root=0)
total = comm.allreduce(comm.Get_rank() + 1)
if comm.Get_rank() == 0:
    printed = subprocess.run(["slurm-plugin", "hosts", "openmpi"], capture_output=True, text=True, check=True).stdout
    with open(os.environ["SLURM_PLUGIN_HOSTFILE"]) as file:
        used = file.read()
    found = {"size": comm.Get_size(), "ranks": everybody, "total": total, "printed": printed, "used": used,
             "path": os.environ["SLURM_PLUGIN_HOSTFILE"], "orte": os.environ["OMPI_MCA_orte_default_hostfile"]}
    with open("found.json", "w") as file:
        json.dump(found, file)
"""

TRAIN = """
import json, os, sys, time, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def train(rank, world):
    torch.manual_seed(rank)  # unlike weights and data: it is DDP that makes the ranks agree
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(64, 8)
    y = x @ torch.arange(8.0).reshape(8, 1)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        dist.all_reduce(loss.detach_())
        losses.append(loss.item() / world)
    weights = torch.cat([part.detach().flatten() for part in model.parameters()])
    everybodys = [torch.empty_like(weights) for _ in range(world)]
    dist.all_gather(everybodys, weights)
    return losses, all(torch.equal(other, weights) for other in everybodys)


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
losses, agree = train(rank, world)
found = {"world": world, "local": os.environ["LOCAL_RANK"], "node": os.uname().nodename}
found |= {"losses": losses, "agree": agree, "given": sys.argv[1:]}
with open(f"rank{rank}.json", "w") as file:
    json.dump(found, file)
dist.barrier()
time.sleep(0.5)  # until all have passed it: nobody's connections close under another's last message
os._exit(0)  # gloo's threads abort a process, now and then, that ends in the usual way
"""


def program(box: Sandbox, name: str, text: str) -> str:
    """A program of alice's; its path on the machines."""
    (box.home("alice") / name).write_text(text, encoding="utf-8")
    return f"/home/alice/{name}"


def plain_job(box: Sandbox, name: str, script: str, *arguments: str) -> str:
    """What a batch job of alice's prints that has nothing to do with us."""
    directory = workdir(box, name)
    words = ["sbatch", "--wait", f"--chdir=/home/alice/{name}", "--output=out", *arguments]
    box.run(words, input=f"#!/bin/bash\n{script}\n")
    return (directory / "out").read_text(encoding="utf-8")


def script_of(box: Sandbox, job: Job) -> list[str]:
    """The batch script that Slurm holds of a job."""
    text = box.run(["scontrol", "write", "batch_script", str(job.id), "-"]).stdout
    return [line for line in text.splitlines() if line]


def test_openmpi_starts_a_rank_a_slot_on_every_host(cluster: Sandbox) -> None:
    """mpi4py over 4 hosts x 2: every rank is on its host, they can add up, and our hostfile is what mpirun read."""
    ranks = program(cluster, "ranks.py", RANKS)
    job = submit(
        cluster, "ranks", mode="openmpi", nodes=4, accelerators={"gpu": 2}, command=f"{PYTHON} {ranks}", env=OPEN_MPI
    )
    assert job.end() == "COMPLETED", job.log
    found = json.loads((job.directory / "found.json").read_text())
    path = f"/home/alice/ranks/.slurm_plugin/{job.id}/hostfile"
    text = "n1 slots=2\nn2 slots=2\nn3 slots=2\nn4 slots=2\n"
    assert found == {
        "size": 8,
        "ranks": [[rank, f"n{rank // 2 + 1}"] for rank in range(8)],
        "total": 36,
        "printed": text,
        "used": text,
        "path": path,
        "orte": path,
    }


def test_openmpi_leaves_a_command_with_mpirun_alone(cluster: Sandbox) -> None:
    """The user's own mpirun is started as it is, once: its own number of ranks, over our hosts, and no -x of ours."""
    command = "mpirun -np 3 --map-by node bash -c 'echo $OMPI_COMM_WORLD_RANK $(hostname) ${NCCL_DEBUG-none}'"
    job = submit(cluster, "own-mpirun", mode="openmpi", nodes=3, command=command, env=OPEN_MPI)
    script = script_of(cluster, job)
    assert job.end() == "COMPLETED", job.log
    assert script[-1].strip() == f"-- {command}"
    assert "[slurm_plugin] launch:" not in job.log
    ours = [line for line in job.log.splitlines() if line.startswith("[slurm_plugin]")]
    assert sorted(set(job.log.splitlines()) - set(ours)) == ["0 n1 none", "1 n2 none", "2 n3 none"]


def test_openmpi_finds_our_hostfile_without_slurms_help(cluster: Sandbox) -> None:
    """An mpirun that knows of no Slurm job has the slots of our hostfile, more than this machine may have cores."""
    command = "env -u SLURM_JOBID -u SLURM_JOB_ID mpirun --bind-to none -np 4 hostname"
    job = submit(cluster, "no-slurm", mode="openmpi", nodes=1, command=command, env=OPEN_MPI)
    assert job.end() == "COMPLETED", job.log
    assert [line for line in job.log.splitlines() if not line.startswith("[slurm_plugin]")] == ["n1"] * 4


def test_openmpi_gives_the_code_of_the_rank_that_failed(cluster: Sandbox) -> None:
    """One rank exits 5 while the others run: the job ends FAILED with 5."""
    command = "bash -c '[ $OMPI_COMM_WORLD_RANK = 3 ] && exit 5; sleep 300'"
    job = submit(cluster, "mpi-five", mode="openmpi", accelerators={"gpu": 2}, command=command, env=OPEN_MPI)
    assert (job.end(), job.exit_code) == ("FAILED", "5:0")


@pytest.mark.skipif(
    not OTHER_ROOT and find_spec("torch") is None, reason="PyTorch is not installed in this environment"
)
@pytest.mark.parametrize("launch", ["node", "task"])
def test_pytorch_trains_with_ddp(cluster: Sandbox, launch: str) -> None:
    """Real DDP over gloo on 2 hosts x 2 ranks: through our torch.distributed.run, and as one srun task a rank."""
    train = program(cluster, f"ddp-{launch}.py", TRAIN)
    job = submit(
        cluster,
        f"ddp-{launch}",
        accelerators={"gpu": 2},
        launch=launch,
        command=f"{PYTHON} {train}",
        env={"OMP_NUM_THREADS": "1", **LIBUV},
    )
    assert job.end() == "COMPLETED", job.log
    (launched,) = [line for line in job.log.splitlines() if line.startswith("[slurm_plugin] launch: srun")]
    assert ("-m torch.distributed.run" in launched) is (launch == "node")
    found: list[dict[str, Any]] = [json.loads((job.directory / f"rank{rank}.json").read_text()) for rank in range(4)]
    places = [(rank["world"], rank["node"], rank["local"]) for rank in found]
    assert places == [(4, "n1", "0"), (4, "n1", "1"), (4, "n2", "0"), (4, "n2", "1")]
    losses = found[0]["losses"]
    assert all(rank["losses"] == losses and rank["agree"] for rank in found)
    assert losses[-1] < losses[0] / 10
    assert losses == sorted(losses, reverse=True)


def test_a_pytorch_launcher_sees_nodes_and_a_task_sees_ranks(cluster: Sandbox) -> None:
    """WORLD_SIZE and RANK count nodes for a launcher, ranks for a task; the rendezvous is one for all of them."""
    say = """bash -c 'echo "$(hostname) $RANK/$WORLD_SIZE ${SLOTS-} ${LOCAL_RANK-} $MASTER_ADDR $MASTER_PORT"'"""
    seen = {}
    for launch in ("node", "task"):
        job = submit(cluster, f"sees-{launch}", nodes=3, accelerators={"gpu": 2}, launch=launch, command=say)
        assert job.end() == "COMPLETED", job.log
        rows = sorted(line.rsplit(" ", 1) for line in job.log.splitlines() if line.startswith("n"))
        seen[launch] = [row[0] for row in rows]
        (port,) = {int(row[1]) for row in rows}
        assert 1024 < port < 65536
    assert seen["node"] == [f"n{node + 1} {node}/3 2  n1" for node in range(3)]
    assert seen["task"] == [f"n{rank // 2 + 1} {rank}/6  {rank % 2} n1" for rank in range(6)]


def test_only_our_own_launch_is_told_its_rank(cluster: Sandbox) -> None:
    """While a job of ours runs, neither its batch step nor a plain job beside it finds RANK or MASTER_ADDR."""
    job = submit(cluster, "ours", command="bash -c 'echo rank $RANK; until [ -e done ]; do sleep 0.1; done'")
    job.until(lambda: "rank 0" in job.log and "rank 1" in job.log, "the launch")
    show = "env | grep -cE '^(RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT|SLURM_PLUGIN_LAUNCH)=' || true"
    beside = plain_job(cluster, "beside", f"hostname; {show}; srun bash -c {show!r}", "--nodes=2", "--nodelist=n[1-2]")
    batch = cluster.run(
        ["sh", "-c", "tr '\\0' '\\n' < /proc/$(pgrep -of 'job [s]upervise')/environ"], user="root", node="n1"
    ).stdout.splitlines()
    (job.directory / "done").touch()
    assert beside.split() == ["n1", "0", "0", "0"]
    assert f"SLURM_JOB_ID={job.id}" in batch
    assert not [line for line in batch if line.startswith(("RANK=", "MASTER_", "SLURM_PLUGIN_LAUNCH="))]
    assert job.end() == "COMPLETED"


def test_an_srun_inside_a_task_is_the_programs_own(cluster: Sandbox) -> None:
    """TaskProlog acts on our launch, not on the steps of the program: there RANK stays what the program made it."""
    nested = """srun --overlap -N1 -n1 bash -c "echo nested \\$RANK \\${SLURM_PLUGIN_LAUNCH-none}\""""
    job = submit(cluster, "nested", command=f"bash -c '[ $RANK = 0 ] || RANK=7 {nested}'")
    assert job.end() == "COMPLETED", job.log
    assert [line for line in job.log.splitlines() if line.startswith("nested")] == ["nested 7 none"]


# SLURM_PLUGIN_LAUNCH -> where TaskProlog would look for it, below the run directory's `jobs`
PLANTED = {"999999.0.0": "999999.0.0/user", "../../etc": "../../etc/user", "..": "../user", "x;id": "x;id/user"}


@pytest.mark.parametrize("value", PLANTED)
def test_a_file_that_somebody_else_planted_is_not_sourced(cluster: Sandbox, value: str) -> None:
    """TaskProlog sources no file of another user's and leaves its directory by no path; the task runs as ever."""
    pid = next(row.pid for row in cluster.status().machines if row.name == "n1")
    assert pid
    folder = inside(pid, "/run/slurm_plugin/jobs") / PLANTED[value]
    owners = [cluster.home("bob").stat().st_uid]
    if value != "999999.0.0":
        owners.append(ALICE_UID)  # even a file of her own: these are no names of ours
    show = ["srun", "-w", "n1", "sh", "-c", "echo ${RANK-none}"]
    try:
        for owner in owners:
            plant(folder, owner)
            done = cluster.run(show, env={"SLURM_PLUGIN_LAUNCH": value}, check=False)
            assert (done.stdout, done.returncode) == ("none\n", 0), done.stderr
        assert not inside(pid, "/tmp/sourced").exists()
    finally:
        shutil.rmtree(folder)


def plant(folder: Path, owner: int) -> None:
    """A task file that shows itself when it is sourced."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "task.sh"
    file.write_text("touch /tmp/sourced; echo export RANK=666; exit 9\n")
    os.chown(file, owner, owner)


@pytest.mark.parametrize(
    ("name", "command", "code"),
    [
        ("five", "bash -c '[ $RANK = 3 ] && exit 5; sleep 300'", "5:0"),
        ("segfault", "/usr/bin/python3 -c 'import os,signal; os.kill(os.getpid(), signal.SIGSEGV)'", "139:0"),
        ("killed", "bash -c '[ $RANK = 1 ] && kill -KILL $$; sleep 300'", "137:0"),
    ],
)
def test_a_job_ends_with_the_code_of_the_task_that_failed(cluster: Sandbox, name: str, command: str, code: str) -> None:
    """Slurm shows how the failing rank ended (128 + n for signal n), not the 143 of those that it took with it."""
    job = submit(cluster, f"code-{name}", accelerators={"gpu": 2}, launch="task", command=command)
    assert (job.end(), job.exit_code) == ("FAILED", code), job.log


@pytest.mark.parametrize("mode", ["openmpi", "pytorch"])
def test_a_command_that_is_not_there_is_named(cluster: Sandbox, mode: str) -> None:
    """The log names the command, and no restart is spent: nodes are not to blame."""
    job = submit(cluster, f"gone-{mode}", mode=mode, command="/opt/gone/mpirun train", retries=1)
    assert (job.end(), job.exit_code, job.grant.requeues) == ("FAILED", "127:0", 0), job.log
    assert "[slurm_plugin] /opt/gone/mpirun: command not found on the PATH of the batch script" in job.log


def test_a_program_that_mpirun_does_not_find_is_not_found(cluster: Sandbox) -> None:
    """As it is without mpirun, whose own code would read as a signal."""
    job = submit(cluster, "gone-program", mode="openmpi", command="./gone", retries=1)
    assert (job.end(), job.exit_code, job.grant.requeues) == ("FAILED", "127:0", 0), job.log
    assert (
        job.attempts[0]["cause"]
        == "the program failed with exit code 127: its command was not found; its nodes are fine"
    )


def test_a_program_is_told_its_attempt_and_its_checkpoint(cluster: Sandbox) -> None:
    """The first attempt is 0 and no restart; the checkpoint directory is absolute whatever the spec says."""
    command = "bash -c 'env | grep ^SLURM_PLUGIN_ | grep -v -e _LAUNCH= -e _BACKEND= | sort; echo at $MASTER_PORT'"
    job = submit(cluster, "told", nodes=1, command=command, checkpoint="deep/checkpoints")
    assert job.end() == "COMPLETED"
    (port,) = [line.removeprefix("at ") for line in job.log.splitlines() if line.startswith("at ")]
    assert [line for line in job.log.splitlines() if line.startswith("SLURM_PLUGIN_")] == [
        "SLURM_PLUGIN_ATTEMPT=0",
        "SLURM_PLUGIN_CHECKPOINT=/home/alice/told/deep/checkpoints",
        f"SLURM_PLUGIN_DIRECTORY=/home/alice/told/.slurm_plugin/{job.id}",
        f"SLURM_PLUGIN_PORT={port}",
        "SLURM_PLUGIN_REASON=",
        "SLURM_PLUGIN_RESTART=0",
    ]


def test_the_supervisor_asks_as_it_is_told(cluster: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """SLURM_PLUGIN_BACKEND travels with the job: pyslurm where a node has it; else the log says why not."""
    monkeypatch.setenv("SLURM_PLUGIN_BACKEND", "pyslurm")
    job = submit(cluster, "backend", nodes=1, command="bash -c 'echo runs; until [ -e done ]; do sleep 0.1; done'")
    job.until(lambda: "runs" in job.log, "the program")
    found = cluster.run(["pgrep", "-u", "alice", "-f", "pyslurm_process"], user="root", node="n1", check=False)
    (job.directory / "done").touch()
    assert job.end() == "COMPLETED", job.log
    said = "[slurm_plugin] pyslurm cannot be imported (No module named 'pyslurm'); Slurm's commands are used instead"
    assert (said in job.log, found.stdout != "") == ((False, True) if WITH_PYSLURM else (True, False))
    assert WITH_PYSLURM is ("commands are used" not in job.log)
