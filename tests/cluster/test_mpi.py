"""MPICH and Intel MPI, their real launchers and libraries, in jobs of ours; Slurm's own pmi2 and pmix."""

import json
import os
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster.jobs import OPEN_MPI, Job, submit
from tests.cluster.test_launch import OTHER_ROOT, PYTHON, plain_job, program

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
EIGHT = [f"n{rank // 2 + 1}-x" for rank in range(8)]
LIBRARY = {"mpich": "MPICH", "intelmpi": "Intel(R)"}
OURS = pytest.mark.skipif(OTHER_ROOT, reason="mpi4py of this environment is not for the Python of another root")


def environment(box: Sandbox, kind: str) -> dict[str, str]:
    """What gives a job the launcher and the library, whose files are put into alice's home."""
    assert (CACHE / kind / ".done").exists(), f"no {kind} in {CACHE}: .ci/launchers installs it"
    home = box.home("alice") / f"mpi-{kind}"
    if not home.exists():
        shutil.copytree(CACHE / kind, home, symlinks=True)
    where = f"/home/alice/mpi-{kind}"
    path = f"{where}/bin:/usr/local/bin:/usr/bin:/bin"
    return {"PATH": path, "LD_LIBRARY_PATH": f"{where}/lib", "MPI4PY_MPIABI": "mpich", "MINE": "-x"}


def found(job: Job) -> dict[str, Any]:
    """What rank 0 wrote down."""
    answer: dict[str, Any] = json.loads((job.directory / "found.json").read_text())
    return answer


@OURS
@pytest.mark.parametrize("launch", ["node", "task"])
@pytest.mark.parametrize("mode", LIBRARY)
def test_every_rank_is_where_our_file_puts_it(cluster: Sandbox, mode: str, launch: str) -> None:
    """4 hosts x 2: through mpiexec.hydra and our file, and with launch: task through Slurm's pmi2."""
    ranks = program(cluster, "mpi-ranks.py", RANKS)
    fields = {"command": f"/sandbox/venv/bin/python {ranks}", "env": environment(cluster, mode), "launch": launch}
    job = submit(cluster, f"{mode}-{launch}", mode=mode, nodes=4, accelerators={"gpu": 2}, **fields)
    assert job.end() == "COMPLETED", job.log
    assert found(job) == {"library": LIBRARY[mode], "hosts": EIGHT, "total": 36}
    assert [line for line in job.log.splitlines() if not line.startswith("[slurm_plugin]")] == []
    launcher = "mpiexec.hydra" if launch == "node" else "srun"
    assert any(line.startswith(f"[slurm_plugin] launch: {launcher} ") for line in job.log.splitlines())


@OURS
@pytest.mark.parametrize("kind", LIBRARY)
def test_unequal_slots_are_the_files(cluster: Sandbox, kind: str) -> None:
    """`host:N` is the form of both: one rank here, three there."""
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
    """mpiexec.hydra would wait for the others; srun ends them."""
    command = "bash -c '[ $PMI_RANK = 3 ] && exit 5; sleep 300'"
    fields = {"command": command, "env": environment(cluster, "mpich"), "launch": "task"}
    job = submit(cluster, "mpich-five", mode="mpich", accelerators={"gpu": 2}, **fields)
    assert (job.end(), job.exit_code) == ("FAILED", "5:0"), job.log


def test_slurms_pmix_serves_open_mpi(cluster: Sandbox) -> None:
    """`launch: task` in mode openmpi, where this build of Slurm has a pmix that can be loaded: 24.11's has.

    Debian's 22.05 looks for a link that only libpmix-dev has, and its 26.05 comes without.
    """
    tried = cluster.run(["srun", "--mpi=pmix", "true"], check=False)
    if tried.returncode:
        pytest.skip(f"srun --mpi=pmix: {tried.stderr.strip().splitlines()[0]}")
    ranks = program(cluster, "pmix-ranks.py", RANKS)
    fields = {"command": f"{PYTHON} {ranks}", "env": {**OPEN_MPI, "MINE": "-x"}, "launch": "task"}
    job = submit(cluster, "pmix", mode="openmpi", nodes=4, accelerators={"gpu": 2}, **fields)
    assert job.end() == "COMPLETED", job.log
    assert found(job) == {"library": "Open", "hosts": EIGHT, "total": 36}
