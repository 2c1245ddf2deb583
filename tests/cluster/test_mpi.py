"""MPICH's and Intel MPI's launchers and libraries on a real Slurm, with the files of `slurm-plugin hosts`."""

import os
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster.test_launch import OTHER_ROOT, plain_job, program

CACHE = Path(os.environ.get("SLURM_PLUGIN_CACHE", "/var/cache/slurm_plugin"), "mpi")  # .ci/launchers fills it
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(OTHER_ROOT, reason="mpi4py of this environment is not for the Python of another root"),
    pytest.mark.skipif(find_spec("mpi4py") is None, reason="mpi4py is not installed in this environment"),
]
RANKS = """
import os
from mpi4py import MPI
comm = MPI.COMM_WORLD
hosts = comm.gather(os.uname().nodename + os.environ.get("MINE", ""), root=0)
total = comm.allreduce(comm.Get_rank() + 1)
if comm.Get_rank() == 0:
    print(comm.Get_size(), total, *hosts, flush=True)
"""
EIGHT = f"8 36 {' '.join(f'n{rank // 2 + 1}-x' for rank in range(8))}"
UNEVEN = "4 10 n1-x n2-x n2-x n2-x"
LAUNCH = {
    "mpich": "HYDRA_HOST_FILE=$PWD/hosts mpiexec.hydra -launcher slurm",
    "intelmpi": "I_MPI_HYDRA_BOOTSTRAP=slurm mpiexec.hydra -machinefile hosts",
}


def prepared(box: Sandbox, kind: str) -> str:
    """The lines that give a job the launcher, whose files stand in alice's home."""
    if not (CACHE / kind / ".done").exists():
        pytest.skip(f"no {kind} in {CACHE}: .ci/launchers installs it")
    home = box.home("alice") / f"mpi-{kind}"
    if not home.exists():
        shutil.copytree(CACHE / kind, home, symlinks=True)
    ranks = program(box, "mpi-ranks.py", RANKS)
    where = f"/home/alice/mpi-{kind}"
    return (
        f"export PATH={where}/bin:$PATH LD_LIBRARY_PATH={where}/lib MPI4PY_MPIABI=mpich MINE=-x\n"
        f"unset SLURM_NTASKS_PER_NODE\nRANKS='/sandbox/venv/bin/python {ranks}'\n"
    )


@pytest.mark.parametrize("kind", LAUNCH)
@pytest.mark.parametrize(("nodes", "slots", "count", "says"), [(4, "2", 8, EIGHT), (2, "1,3", 4, UNEVEN)])
def test_hydra_starts_a_rank_a_slot_through_slurm(
    cluster: Sandbox, kind: str, nodes: int, slots: str, count: int, says: str
) -> None:
    """Every rank is on the host that our file gives it, has the job's environment, and can add up with the others."""
    script = prepared(cluster, kind) + (
        f"slurm-plugin hosts {kind} --slots {slots} --output hosts\n{LAUNCH[kind]} -n {count} $RANKS\n"
    )
    assert plain_job(cluster, f"hydra-{kind}-{count}", script, f"--nodes={nodes}").splitlines() == [says]


@pytest.mark.parametrize("kind", LAUNCH)
def test_srun_pmi2_starts_the_ranks(cluster: Sandbox, kind: str) -> None:
    """Slurm's own pmi2 serves MPICH's and Intel MPI's library, without a launcher of theirs."""
    offered = cluster.run(["sh", "-c", "srun --mpi=list 2>&1"]).stdout.split()
    if "pmi2" not in offered:
        pytest.skip(f"srun --mpi=list names no pmi2: {offered}")
    script = prepared(cluster, kind) + "srun --mpi=pmi2 -n 8 $RANKS\n"
    assert plain_job(cluster, f"pmi2-{kind}", script, "--nodes=4", "--ntasks-per-node=2").splitlines() == [EIGHT]
