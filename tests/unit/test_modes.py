"""Mirrors slurm_plugin/modes/: what is launched for a command, and what each task finds."""

import shlex
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostfiles import Allocation, Host
from hostfiles.pytorch import node_variables, rank_variables
from slurm_plugin.errors import UsageError
from slurm_plugin.modes import MODES, Shape
from slurm_plugin.modes.pytorch import LAUNCHER

OPENMPI, PYTORCH = MODES["openmpi"], MODES["pytorch"]
SHAPE = Shape(nodes=4, slots=8)
ALLOCATION = Allocation((Host("n1", 2, 2), Host("n2", 2, 2), Host("n3", 2, 2)), 17)


def argv(mode: str, command: str, shape: Shape = SHAPE) -> str:
    """The launch of a command, as a shell would be given it."""
    return shlex.join(MODES[mode].launch(tuple(shlex.split(command)), shape).argv)


def test_mpirun_is_put_before_a_command_without_it() -> None:
    """Row C1's prefix, with one process a slot."""
    assert argv("openmpi", "python train.py") == (
        "mpirun -np 32 --bind-to none --map-by slot -x NCCL_DEBUG=INFO -x LD_LIBRARY_PATH -x PATH -mca pml ob1"
        " -mca btl '^openib' python train.py"
    )


def test_only_root_is_allowed_to_run_as_root() -> None:
    """`--allow-run-as-root` stands there only where root submits."""
    root = Shape(nodes=1, slots=1, root=True)
    assert argv("openmpi", "x", root).startswith("mpirun --allow-run-as-root -np 1 ")


def test_the_users_own_nccl_debug_is_kept() -> None:
    """A variable that the spec sets is handed on with its own value."""
    mine = Shape(nodes=1, slots=1, env=frozenset({"NCCL_DEBUG"}))
    assert " -x NCCL_DEBUG -x LD_LIBRARY_PATH " in argv("openmpi", "x", mine)


@pytest.mark.parametrize(
    "command",
    [
        "mpirun -np 2 x",
        "/opt/ompi/bin/mpirun x",
        "mpiexec x",
        "bash -c 'module load x; mpirun y'",
        "srun x",
        "orterun x",
    ],
)
def test_a_command_that_names_mpirun_is_left_alone(command: str) -> None:
    """Row C1: wherever it names it."""
    assert argv("openmpi", command) == command


NODE = "srun --nodes=4 --ntasks=4 --ntasks-per-node=1 --kill-on-bad-exit=1 --export=ALL "
LAUNCHED = {
    "python train.py --lr 1": "python train.py --lr 1",
    "python3 -m pkg.train x": "python3 -m pkg.train x",
    "python -u train.py": "python train.py",
    "python3.11 train.py": "python3.11 train.py",
    "/opt/env/bin/python train.py": "/opt/env/bin/python train.py",
    "python -X dev train.py": "python --no_python python -X dev train.py",
    "python -c 'print(1)'": "python --no_python python -c 'print(1)'",
}


@pytest.mark.parametrize("command", LAUNCHED)
def test_python_is_started_through_the_launcher_of_that_python(command: str) -> None:
    """Row C3: once a node, with the user's own interpreter."""
    assert argv("pytorch", command) == f"{NODE}bash -c {shlex.quote(LAUNCHER)} {LAUNCHED[command]}"


@pytest.mark.parametrize(
    "command",
    [
        "torchrun --nnodes 4 train.py",
        "python -m torch.distributed.run train.py",
        "python3 -u -m torch.distributed.launch train.py",
        "accelerate launch train.py",
        "deepspeed train.py",
        "bash -c 'torchrun --node-rank=$RANK train.py'",
        "python",
        "pythonista x.py",
    ],
)
def test_a_command_that_names_a_launcher_or_is_no_python_is_started_as_it_is_on_every_node(command: str) -> None:
    """Row C3: left alone, but on every node, where its variables are set."""
    assert argv("pytorch", command) == NODE + command


@pytest.mark.parametrize("command", ["srun --ntasks=4 x", "mpirun x"])
def test_a_command_that_starts_its_own_tasks_is_started_once(command: str) -> None:
    """srun and mpirun reach the other nodes by themselves."""
    assert argv("pytorch", command) == command


def test_launch_task_is_one_task_a_rank() -> None:
    """`launch: task`: the user's command as it is, one task a slot."""
    task = Shape(nodes=4, slots=8, launch="task")
    assert argv("pytorch", "python train.py", task) == (
        "srun --nodes=4 --ntasks=32 --ntasks-per-node=8 --kill-on-bad-exit=1 --export=ALL python train.py"
    )


@given(st.lists(st.text(min_size=1), min_size=1, max_size=5), st.sampled_from(sorted(MODES)))
def test_the_users_words_stay_whole_and_in_order(words: list[str], mode: str) -> None:
    """Whatever is put before them, the words after the executable end the launch as they were."""
    launched = MODES[mode].launch(tuple(words), SHAPE).argv
    assert launched[len(launched) - len(words) :] == tuple(words)


def test_no_text_of_the_user_is_in_a_note() -> None:
    """A note becomes a comment of the script: a newline in a word must not end it."""
    word = "python\nrm -rf /"
    for mode in MODES.values():
        for words in ((word,), ("python", word), ("mpirun", word)):
            note = mode.launch(words, SHAPE).note
            assert "rm" not in note
            assert "\n" not in note


def test_openmpi_finds_the_hostfile() -> None:
    """`host slots=N` lines, under the names of Open MPI 4 and 5; no task differs from another."""
    assert OPENMPI.hostfile(ALLOCATION) == "n1 slots=2\nn2 slots=2\nn3 slots=2\n"
    assert OPENMPI.variables(ALLOCATION, port=1, hostfile_path="/w/hostfile", launch="node") == {
        "OMPI_MCA_orte_default_hostfile": "/w/hostfile",
        "PRTE_MCA_prte_default_hostfile": "/w/hostfile",
    }
    assert OPENMPI.task_script(ALLOCATION, port=1, launch="node") is None


def test_the_task_script_of_a_launcher() -> None:
    """One builtin a variable; MASTER_ADDR and the counts travel in the environment of srun."""
    assert PYTORCH.hostfile(ALLOCATION) is None
    assert PYTORCH.task_script(ALLOCATION, port=29400, launch="node") == (
        "printf 'export %s=%s\\n' RANK \"$SLURM_NODEID\"\n"
    )
    assert PYTORCH.variables(ALLOCATION, port=29400, hostfile_path=None, launch="node") == {
        "MASTER_ADDR": "n1",
        "MASTER_PORT": "29400",
        "WORLD_SIZE": "3",
        "SLOTS": "2",
    }


@pytest.mark.parametrize("launch", ["node", "task"])
def test_every_task_finds_what_hostfiles_says_of_it(launch: str) -> None:
    """Environment and TaskProlog together give each task exactly the variables of hostfiles.pytorch."""
    shared = PYTORCH.variables(ALLOCATION, port=29400, hostfile_path=None, launch=launch)
    script = PYTORCH.task_script(ALLOCATION, port=29400, launch=launch)
    for task in range(6 if launch == "task" else 3):
        local = (task // 2, task % 2) if launch == "task" else (task, 0)
        slurm = {"SLURM_PROCID": str(task), "SLURM_NODEID": str(local[0]), "SLURM_LOCALID": str(local[1])}
        said = subprocess.run(["/bin/sh", "-c", str(script)], env=slurm, capture_output=True, text=True, check=True)
        own = dict(line.removeprefix("export ").split("=", 1) for line in said.stdout.splitlines())
        expected = (
            node_variables(ALLOCATION, task, 29400) if launch == "node" else rank_variables(ALLOCATION, task, 29400)
        )
        assert shared | own == expected


def test_unlike_numbers_of_tasks_are_refused() -> None:
    """One LOCAL_WORLD_SIZE for all would be a lie on some node."""
    uneven = Allocation((Host("n1", 2, 2), Host("n2", 2, 1)))
    with pytest.raises(UsageError, match="unlike numbers of tasks"):
        PYTORCH.variables(uneven, port=1, hostfile_path=None, launch="task")
