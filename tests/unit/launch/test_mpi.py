"""Mirrors slurm_plugin/launch/{openmpi,horovod,mpich,intelmpi}.py: the launch prefixes, and what the launchers get."""

import shlex

from hostfiles import Allocation, Host
from slurm_plugin.launch import MODES, Place, Shape

SHAPE = Shape(nodes=4, slots=8)
PLACE = Place(Allocation((Host("n1", 2, 2), Host("n2", 4, 2)), 17), port=61000, directory="/w/.slurm_plugin/17")
MPI = ("openmpi", "horovod", "mpich", "intelmpi")
OPEN_MPI_FINDS = {
    "OMPI_MCA_orte_default_hostfile": "/w/.slurm_plugin/17/hostfile",
    "PRTE_MCA_prte_default_hostfile": "/w/.slurm_plugin/17/hostfile",
}


def argv(mode: str, command: str, shape: Shape = SHAPE) -> str:
    """Return the launch of a command, as for a shell."""
    return shlex.join(MODES[mode].launch(tuple(shlex.split(command)), shape).argv)


def test_mpirun_is_put_before_a_command_without_it() -> None:
    """With one process for each slot."""
    for mode in ["openmpi", "horovod"]:
        assert argv(mode, "python train.py") == (
            "mpirun -np 32 --bind-to none --map-by slot -x NCCL_DEBUG=INFO -x LD_LIBRARY_PATH -x PATH -mca pml ob1"
            " -mca btl '^openib' python train.py"
        ), mode


def test_only_root_is_allowed_to_run_as_root() -> None:
    """`--allow-run-as-root` is only there if root runs the job."""
    root = Shape(nodes=1, slots=1, root=True)
    assert argv("openmpi", "x", root).startswith("mpirun --allow-run-as-root -np 1 ")


def test_the_users_own_nccl_debug_is_kept() -> None:
    """A variable that is set keeps its value."""
    mine = Shape(nodes=1, slots=1, env=frozenset({"NCCL_DEBUG"}))
    assert " -x NCCL_DEBUG -x LD_LIBRARY_PATH " in argv("openmpi", "x", mine)


def test_a_command_that_names_a_launcher_is_left_alone() -> None:
    """Wherever the command names it."""
    cases = [
        "mpirun -np 2 x",
        "/opt/mpi/bin/mpirun x",
        "mpiexec x",
        "mpiexec.hydra x",
        "bash -c 'module load x; mpirun y'",
        "bash -lc '/opt/mpi/bin/mpiexec y'",
        "bash -c 'horovodrun -np 4 python t.py'",
        "env A=1 mpirun x",
        "env A=1 bash -c 'mpirun x'",
        "srun x",
        "horovodrun -np 4 python t.py",
        "orterun x",
    ]
    for command in cases:
        for mode in MPI:
            assert argv(mode, command) == command, command


def test_a_name_that_only_looks_like_one_is_none() -> None:
    """A mistake here would give one rank on one node."""
    for command in ["/scratch/srun-tests/solver", "./a.out --title 'mpirun scaling'", "python mpirun_log.py"]:
        for mode in MPI:
            assert argv(mode, command) != command, command


def test_hydra_gets_its_own_prefix() -> None:
    """By the name that MPICH and Intel MPI both install. Intel MPI gets its machine file."""
    assert argv("mpich", "./a.out 3") == "mpiexec.hydra -launcher slurm -n 32 ./a.out 3"
    assert argv("intelmpi", "./a.out 3", Shape(4, 8, hostfile="/w/hostfile")) == (
        "mpiexec.hydra -bootstrap slurm -machinefile /w/hostfile -n 32 ./a.out 3"
    )
    assert MODES["intelmpi"].defaults(PLACE) == {"I_MPI_HYDRA_BOOTSTRAP": "slurm"}


def test_a_task_a_rank_is_served_by_slurm() -> None:
    """`launch: task`: srun ends all ranks when one fails."""
    for mode, pmi in [("mpich", "pmi2"), ("intelmpi", "pmi2"), ("openmpi", "pmix")]:
        assert argv(mode, "./a.out", Shape(4, 8, "task")) == (
            f"srun --nodes=4 --ntasks=32 --ntasks-per-node=8 --kill-on-bad-exit=1 --export=ALL --mpi={pmi} ./a.out"
        ), mode


def test_no_task_differs_from_another() -> None:
    """mpirun gives each rank its number."""
    for mode in MPI:
        assert MODES[mode].task_script(PLACE) is None, mode


def test_open_mpi_finds_its_hostfile() -> None:
    """`host slots=N` lines, under the names of Open MPI 4 and 5."""
    assert MODES["openmpi"].files(PLACE) == {"hostfile": "n1 slots=2\nn2 slots=4\n"}
    assert MODES["openmpi"].variables(PLACE) == OPEN_MPI_FINDS


def test_hydra_finds_its_hostfile() -> None:
    """`host:N` lines."""
    for mode in ["mpich", "intelmpi"]:
        assert MODES[mode].files(PLACE) == {"hostfile": "n1:2\nn2:4\n"}, mode


def test_mpich_is_told_the_file_and_the_interface() -> None:
    """HYDRA_HOST_FILE, and HYDRA_IFACE if the interface is known and the user names none."""
    assert MODES["mpich"].variables(PLACE) == {"HYDRA_HOST_FILE": "/w/.slurm_plugin/17/hostfile"}
    assert MODES["mpich"].defaults(PLACE) == {}
    with_interface = Place(PLACE.allocation, 61000, PLACE.directory, interface="ib0")
    assert MODES["mpich"].defaults(with_interface) == {"HYDRA_IFACE": "ib0"}


def test_horovod_has_the_files_of_both() -> None:
    """For Open MPI and for MPICH."""
    mode = MODES["horovod"]
    assert mode.files(PLACE) == {"hostfile": "n1 slots=2\nn2 slots=4\n", "hostfile.mpich": "n1:2\nn2:4\n"}
    assert mode.variables(PLACE) == {**OPEN_MPI_FINDS, "HYDRA_HOST_FILE": "/w/.slurm_plugin/17/hostfile.mpich"}
