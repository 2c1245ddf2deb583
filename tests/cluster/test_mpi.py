"""MPICH and Intel MPI in jobs of slurm_plugin, with their real launchers and libraries, and Slurm's pmi2 and pmix."""

import json
import os
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster import alone
from tests.cluster.jobs import OPEN_MPI, Job, submit
from tests.cluster.programs import OTHER_ROOT, PYTHON, plain_job, program

CACHE = Path(os.environ.get("SLURM_PLUGIN_CACHE", "/var/cache/slurm_plugin"), "mpi")  # .ci/launchers fills it
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(find_spec("mpi4py") is None, reason="mpi4py is not installed in this environment"),
]
RANKS = """
import json, os
from mpi4py import MPI

comm = MPI.COMM_WORLD
hosts = comm.gather(os.uname().nodename + os.environ.get("MINE", ""), root=0)
total = comm.allreduce(comm.Get_rank() + 1)
if comm.Get_rank() == 0:
    with open("found.json", "w") as file:
        json.dump({"library": MPI.Get_library_version().split()[0], "hosts": hosts, "total": total}, file)
"""
# Slurm's pmix lets some ranks leave MPI_Init before the others, and Open MPI 5 crashes if a message arrives in MPI_Init
# (open-mpi/ompi#12495). So no rank sends one before all have left it.
TOGETHER = """
import os, time
from mpi4py import MPI

open(f"left-init-{MPI.COMM_WORLD.Get_rank()}", "w").close()
while sum(name.startswith("left-init-") for name in os.listdir()) < MPI.COMM_WORLD.Get_size():
    time.sleep(0.1)
"""
EIGHT = [f"n{rank // 2 + 1}-x" for rank in range(8)]
LIBRARY = {"mpich": "MPICH", "intelmpi": "Intel(R)"}
OURS = pytest.mark.skipif(OTHER_ROOT, reason="mpi4py of this environment is not for the Python of another root")


def environment(box: Sandbox, kind: str) -> dict[str, str]:
    """Put the launcher's and the library's files into alice's home, and return the job's environment."""
    assert (CACHE / kind / ".done").exists(), f"no {kind} in {CACHE}: .ci/launchers installs it"
    home = box.home("alice") / f"mpi-{kind}"
    if not home.exists():
        shutil.copytree(CACHE / kind, home, symlinks=True)
    where = f"/home/alice/mpi-{kind}"
    path = f"{where}/bin:/usr/local/bin:/usr/bin:/bin"
    return {"PATH": path, "LD_LIBRARY_PATH": f"{where}/lib", "MPI4PY_MPIABI": "mpich", "MINE": "-x"}


def found(job: Job) -> dict[str, Any]:
    """Return what rank 0 wrote."""
    answer: dict[str, Any] = json.loads((job.directory / "found.json").read_text())
    return answer


@OURS
def test_every_rank_is_where_our_file_puts_it(cluster: Sandbox) -> None:
    """4 hosts x 2: through mpiexec.hydra with our file, and with launch: task through Slurm's pmi2."""
    command = f"/sandbox/venv/bin/python {program(cluster, 'mpi-ranks.py', RANKS)}"
    fields = {"nodes": 4, "nodelist": "n[1-4]", "accelerators": {"gpu": 2}, "command": command}
    jobs = {
        (mode, launch): submit(
            cluster, f"{mode}-{launch}", mode=mode, launch=launch, env=environment(cluster, mode), **fields
        )
        for mode in LIBRARY
        for launch in ("node", "task")
    }
    for (mode, launch), job in jobs.items():
        assert job.end() == "COMPLETED", job.log
        assert found(job) == {"library": LIBRARY[mode], "hosts": EIGHT, "total": 36}
        assert [line for line in job.log.splitlines() if not line.startswith("[slurm_plugin]")] == []
        launcher = "mpiexec.hydra" if launch == "node" else "srun"
        assert any(line.startswith(f"[slurm_plugin] launch: {launcher} ") for line in job.log.splitlines())


@OURS
@pytest.mark.full  # 20 s
@pytest.mark.parametrize("mode", LIBRARY)
def test_without_an_admin(alice: Sandbox, mode: str) -> None:
    """The library's own launcher starts its ranks where alice's own installation says."""
    command = f"/sandbox/venv/bin/python {program(alice, 'mpi-ranks.py', RANKS)}"
    fields = {"nodes": 2, "accelerators": {"gpu": 2}, "command": command, "launch": "node"}
    job = alone.submit(alice, f"alone-{mode}", mode=mode, env=environment(alice, mode), **fields)
    assert job.end() == "COMPLETED", job.log
    assert found(job) == {"library": LIBRARY[mode], "hosts": EIGHT[:4], "total": 10}
    assert "[slurm_plugin] launch: mpiexec.hydra " in job.log


@pytest.mark.full  # 10 s for each MPI
@OURS
@pytest.mark.parametrize("kind", LIBRARY)
def test_unequal_slots_are_the_files(cluster: Sandbox, kind: str) -> None:
    """`host:N` is the form of both: one rank on one host, three on the other."""
    ranks = program(cluster, "mpi-ranks.py", RANKS)
    given = "".join(f"export {name}={value}\n" for name, value in environment(cluster, kind).items())
    given = given.replace("/usr/local/bin:/usr/bin:/bin", "$PATH")
    launch = {"mpich": "-launcher slurm -f hosts", "intelmpi": "-bootstrap slurm -machinefile hosts"}[kind]
    script = f"""{given}unset SLURM_NTASKS_PER_NODE
    slurm-plugin hosts {kind} --slots 1,3 --output hosts
    mpiexec.hydra {launch} -n 4 /sandbox/venv/bin/python {ranks}; cat found.json"""
    said = json.loads(plain_job(cluster, f"uneven-{kind}", script, "--nodes=2"))
    assert said["hosts"] == ["n1-x", "n2-x", "n2-x", "n2-x"]


@OURS
def test_a_rank_that_fails_ends_a_task_level_launch_with_its_code(cluster: Sandbox) -> None:
    """mpiexec.hydra would wait for the other ranks; srun ends them."""
    command = "bash -c '[ $PMI_RANK = 3 ] && exit 5; sleep 9000'"
    fields = {"command": command, "env": environment(cluster, "mpich"), "launch": "task"}
    job = submit(cluster, "mpich-five", mode="mpich", accelerators={"gpu": 2}, **fields)
    assert (job.end(), job.exit_code) == ("FAILED", "5:0"), job.log


@pytest.mark.full  # over 5 s
def test_slurms_pmix_serves_open_mpi(cluster: Sandbox) -> None:
    """`launch: task` in mode openmpi, if this Slurm can load its pmix: Debian's 24.11 can.

    Debian's 22.05 needs a link that only libpmix-dev has, and its 26.05 has no pmix.
    """
    tried = cluster.run(["srun", "--mpi=pmix", "true"], check=False)
    if tried.returncode:
        pytest.skip(f"srun --mpi=pmix: {tried.stderr.strip().splitlines()[0]}")
    ranks = program(cluster, "pmix-ranks.py", TOGETHER + RANKS)
    fields = {"command": f"{PYTHON} {ranks}", "env": {**OPEN_MPI, "MINE": "-x"}, "launch": "task"}
    job = submit(cluster, "pmix", mode="openmpi", nodes=4, accelerators={"gpu": 2}, **fields)
    assert job.end() == "COMPLETED", job.log
    assert found(job) == {"library": "Open", "hosts": EIGHT, "total": 36}
