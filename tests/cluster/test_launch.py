"""How programs are started, on a real Slurm: with real mpirun and torchrun, and with the variables of each process."""

import json
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest

from slurm_plugin.sandbox import Sandbox
from slurm_plugin.sandbox.machine import inside
from tests.cluster.jobs import OPEN_MPI, printed, submit
from tests.cluster.programs import LIBUV, OTHER_ROOT, PYTHON, TRAIN, program

pytestmark = pytest.mark.cluster

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


def test_openmpi_starts_a_rank_a_slot_on_every_host(cluster: Sandbox) -> None:
    """mpi4py over 4 hosts x 2: every rank is on its host, they can reduce, and mpirun has read our hostfile.

    One rank exits with 5 while the others run: the job ends FAILED with 5.
    """
    fields = {"mode": "openmpi", "accelerators": {"gpu": 2}, "env": OPEN_MPI}
    ranks = program(cluster, "ranks.py", RANKS)
    job = submit(cluster, "ranks", nodes=4, nodelist="n[1-4]", command=f"{PYTHON} {ranks}", **fields)
    command = "bash -c '[ $OMPI_COMM_WORLD_RANK = 3 ] && exit 5; sleep 9000'"
    five = submit(cluster, "mpi-five", command=command, **fields)
    assert (five.end(), five.exit_code) == ("FAILED", "5:0")
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
    """The user's own mpirun is started unchanged, once: with its number of ranks on our hosts, without -x from us.

    An mpirun that does not detect the Slurm job gets the slots of our hostfile, even beyond this machine's cores.
    """
    command = "mpirun -np 3 --map-by node bash -c 'echo $OMPI_COMM_WORLD_RANK $(hostname) ${NCCL_DEBUG-none}'"
    job = submit(cluster, "own-mpirun", mode="openmpi", nodes=3, nodelist="n[1-3]", command=command, env=OPEN_MPI)
    alone = "env -u SLURM_JOBID -u SLURM_JOB_ID mpirun --bind-to none -np 4 hostname"
    no_slurm = submit(cluster, "no-slurm", mode="openmpi", nodes=1, nodelist="n5", command=alone, env=OPEN_MPI)
    text = cluster.run(["scontrol", "write", "batch_script", str(job.id), "-"]).stdout
    assert f"-- {command}" in [line.strip().removesuffix(" || {") for line in text.splitlines()], text
    assert job.end() == "COMPLETED", job.log
    assert "[slurm_plugin] launch:" not in job.log
    assert printed(job) == ["0 n1 none", "1 n2 none", "2 n3 none"]
    assert no_slurm.end() == "COMPLETED", no_slurm.log
    assert printed(no_slurm) == ["n5"] * 4


@pytest.mark.skipif(
    not OTHER_ROOT and find_spec("torch") is None, reason="PyTorch is not installed in this environment"
)
def test_pytorch_trains_with_ddp(cluster: Sandbox) -> None:
    """Real DDP over gloo on 2 hosts x 2 ranks: through torch.distributed.run, and as one task for each rank."""
    train = program(cluster, "ddp.py", TRAIN)
    fields = {"accelerators": {"gpu": 2}, "command": f"{PYTHON} {train}", "env": {"OMP_NUM_THREADS": "1", **LIBUV}}
    jobs = {launch: submit(cluster, f"ddp-{launch}", launch=launch, **fields) for launch in ("node", "task")}
    for launch, job in jobs.items():
        assert job.end() == "COMPLETED", job.log
        (launched,) = [line for line in job.log.splitlines() if line.startswith("[slurm_plugin] launch: srun")]
        assert ("-m torch.distributed.run" in launched) is (launch == "node")
        found: list[dict[str, Any]] = [
            json.loads((job.directory / f"rank{rank}.json").read_text()) for rank in range(4)
        ]
        places = [(rank["world"], rank["node"], rank["local"]) for rank in found]
        one, two = sorted(job.nodes)
        assert places == [(4, one, "0"), (4, one, "1"), (4, two, "0"), (4, two, "1")]
        losses = found[0]["losses"]
        assert all(rank["losses"] == losses and rank["agree"] for rank in found)
        assert losses[-1] < losses[0] / 10
        assert losses == sorted(losses, reverse=True)


@pytest.fixture
def debian(cluster: Sandbox) -> Iterator[Sandbox]:
    """Write the line of Debian's installer into each node's /etc/hosts: the own name is 127.0.1.1."""
    files = {row.name: inside(row.pid or 0, "/etc/hosts") for row in cluster.status().machines}
    before = {name: file.read_text() for name, file in files.items()}
    for name, file in files.items():
        file.write_text(f"127.0.1.1 {name}\n{before[name]}")
    yield cluster
    for name, file in files.items():
        file.write_text(before[name])


@pytest.mark.full  # 10 s
@pytest.mark.skipif(
    not OTHER_ROOT and find_spec("torch") is None, reason="PyTorch is not installed in this environment"
)
def test_pytorch_where_each_name_is_a_loopback_address(debian: Sandbox) -> None:
    """Gloo would listen there, and no other node could reach it. It gets an interface; the log and `check` say why."""
    train = program(debian, "ddp.py", TRAIN)
    fields = {"accelerators": {"gpu": 1}, "command": f"{PYTHON} {train}", "env": {"OMP_NUM_THREADS": "1", **LIBUV}}
    job = submit(debian, "ddp-debian", nodelist="n[1-2]", **fields)
    said = debian.run(["slurm-plugin", "check", "dns"], node="n1").stdout
    assert "1 name; n1 is 127.0.1.1 here, which no other node can reach; see /etc/hosts" in said
    assert job.end() == "COMPLETED", job.log
    why = "its name is 127.0.1.1 there, which no other node can reach: see /etc/hosts"
    assert f"[slurm_plugin] n[1-2]: {why}; the tasks get GLOO_SOCKET_IFNAME=eth0, unless it is set\n" in job.log
    assert {json.loads((job.directory / f"rank{rank}.json").read_text())["node"] for rank in (0, 1)} == {"n1", "n2"}


def test_a_pytorch_launcher_sees_nodes_and_a_task_sees_ranks(cluster: Sandbox) -> None:
    """WORLD_SIZE and RANK count nodes for a launcher, and ranks for a task. All have the same rendezvous."""
    say = """bash -c 'echo "$(hostname) $RANK/$WORLD_SIZE ${SLOTS-} ${LOCAL_RANK-} $MASTER_ADDR $MASTER_PORT"'"""
    fields = {"nodes": 3, "nodelist": "n[1-3]", "accelerators": {"gpu": 2}, "command": say}
    jobs = {launch: submit(cluster, f"sees-{launch}", launch=launch, **fields) for launch in ("node", "task")}
    seen = {}
    for launch, job in jobs.items():
        assert job.end() == "COMPLETED", job.log
        rows = sorted(line.rsplit(" ", 1) for line in job.log.splitlines() if line.startswith("n"))
        seen[launch] = [row[0] for row in rows]
        (port,) = {int(row[1]) for row in rows}
        assert 1024 < port < 65536
    assert seen["node"] == [f"n{node + 1} {node}/3 2  n1" for node in range(3)]
    assert seen["task"] == [f"n{rank // 2 + 1} {rank}/6  {rank % 2} n1" for rank in range(6)]


@pytest.mark.full  # over 5 s
def test_a_full_disk_under_the_log_stops_no_program(cluster: Sandbox) -> None:
    """Each write to the log fails: the program starts, writes more than a pipe holds, and ends.

    The restart after a failure still happens.
    """
    loud = "head -c 1000000 /dev/zero; head -c 1000000 /dev/zero >&2; echo >&2"
    command = (
        f"bash -c '{loud}; touch ran.$(hostname).$SLURM_PLUGIN_ATTEMPT; exit $((7 * (SLURM_PLUGIN_ATTEMPT == 0)))'"
    )
    fields = {"command": command, "output": "/dev/full"}
    jobs = submit(cluster, "full-0", **fields), submit(cluster, "full-1", retries=1, unconditional="yes", **fields)
    assert jobs[0].end() == "FAILED"
    assert list(jobs[0].directory.glob("ran.*.0"))  # the first failure ends the others
    assert jobs[1].end() == "COMPLETED"
    assert {path.name for path in jobs[1].directory.glob("ran.*.1")} == {f"ran.{node}.1" for node in jobs[1].nodes}
