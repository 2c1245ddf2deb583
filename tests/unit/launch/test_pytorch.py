"""Mirrors slurm_plugin/launch/pytorch.py: the launch of a command, and the variables of each task."""

import shlex

import pytest

from hostfiles import Allocation, Host
from hostfiles.pytorch import node_variables, rank_variables
from slurm_plugin.errors import UsageError
from slurm_plugin.launch import MODES, Group, Place, Shape
from slurm_plugin.launch.pytorch import LAUNCHER
from slurm_plugin.launch.variables import placeholder
from tests.unit.launch.tasks import exports

PYTORCH = MODES["pytorch"]
SHAPE = Shape(nodes=4, slots=8)
ALLOCATION = Allocation((Host("n1", 2, 2), Host("n2", 2, 2), Host("n3", 2, 2)), 17)


def argv(command: str, shape: Shape = SHAPE) -> str:
    """The launch of a command, as a shell would be given it."""
    return shlex.join(PYTORCH.launch(tuple(shlex.split(command)), shape).argv)


def place(launch: str = "node", allocation: Allocation = ALLOCATION) -> Place:
    """The job on its nodes."""
    return Place(allocation, port=29400, directory="/w/.slurm_plugin/17", launch=launch)


NODE = "srun --nodes=4 --ntasks=4 --ntasks-per-node=1 --kill-on-bad-exit=1 --export=ALL "
LAUNCHED = {
    "python train.py --lr 1": "python train.py --lr 1",
    "python3 -m pkg.train x": "python3 -m pkg.train x",
    "python -u train.py": "python train.py",
    "python3.11 train.py": "python3.11 train.py",
    "/opt/env/bin/python train.py": "/opt/env/bin/python train.py",
    "python -X dev train.py": "python --no_python python -X dev train.py",
    "python -um pkg.train -m x": "python -m pkg.train -m x",
    "python -mpkg.train x": "python -m pkg.train x",
    "python -uWignore train.py": "python --no_python python -uWignore train.py",
    "python -c 'print(1)'": "python --no_python python -c 'print(1)'",
}


def test_python_is_started_through_the_launcher_of_that_python() -> None:
    """Row C3: once a node, with the user's own interpreter."""
    for command, wanted in LAUNCHED.items():
        assert argv(command) == f"{NODE}bash -p -c {shlex.quote(LAUNCHER)} {wanted}", command


def test_a_command_that_names_a_launcher_or_is_no_python_is_started_as_it_is_on_every_node() -> None:
    """Row C3: left alone, but on every node, where its variables are set."""
    cases = [
        "torchrun --nnodes 4 train.py",
        "python -m torch.distributed.run train.py",
        "python3 -u -m torch.distributed.launch train.py",
        "python -mtorch.distributed.launch --nproc_per_node=2 train.py",
        "python -um torch.distributed.run train.py",
        "python3 -uBmtorch.distributed.run train.py",
        "python -X dev -m torch.distributed.run train.py",
        "python /opt/env/bin/torchrun train.py",
        "accelerate launch train.py",
        "deepspeed train.py",
        "bash -c 'torchrun --node-rank=$RANK train.py'",
        "python",
        "pythonista x.py",
    ]
    for command in cases:
        assert argv(command) == NODE + command, command


def test_variables_are_replaced_in_the_task() -> None:
    """RANK differs from node to node: bash on each of them replaces it, before a launcher of ours too."""
    words = ("torchrun", "--node_rank", placeholder("RANK"), "$RANK")
    unset = "the command names it, and it is not set on this node"
    text = f'(: "${{RANK?{unset}}}") || exit 2; exec torchrun --node_rank "${{RANK}}" \'$RANK\''
    assert PYTORCH.launch(words, SHAPE).argv == (*NODE.split(), "bash", "-p", "-c", text, "[slurm_plugin] error")
    text = f'(: "${{LR?{unset}}}") || exit 2; exec bash -p -c {shlex.quote(LAUNCHER)} python x.py "${{LR}}"'
    ours = PYTORCH.launch(("python", "x.py", placeholder("LR")), SHAPE).argv
    assert ours == (*NODE.split(), "bash", "-p", "-c", text, "[slurm_plugin] error")


def test_a_command_that_starts_its_own_tasks_is_started_once() -> None:
    """srun and mpirun reach the other nodes by themselves."""
    for command in ["srun --ntasks=4 x", "mpirun x"]:
        assert argv(command) == command, command


def test_launch_task_is_one_task_a_rank() -> None:
    """`launch: task`: the user's command as it is, one task a slot."""
    task = Shape(nodes=4, slots=8, launch="task")
    assert argv("python train.py", task) == (
        "srun --nodes=4 --ntasks=32 --ntasks-per-node=8 --kill-on-bad-exit=1 --export=ALL python train.py"
    )


def test_the_task_script_of_a_launcher() -> None:
    """Builtins and one mkdir; MASTER_ADDR and the counts travel in the environment of srun."""
    assert PYTORCH.files(place()) == {}
    assert str(PYTORCH.task_script(place())).startswith("printf 'export %s\\n' \"RANK=$SLURM_NODEID\"\n")
    assert PYTORCH.variables(place()) == {
        "MASTER_ADDR": "n1",
        "MASTER_PORT": "29400",
        "WORLD_SIZE": "3",
        "SLOTS": "2",
    }


def test_every_task_finds_what_hostfiles_says_of_it() -> None:
    """Environment and TaskProlog together give each task exactly the variables of hostfiles.pytorch."""
    for launch in ["node", "task"]:
        shared = PYTORCH.variables(place(launch))
        for task in range(6 if launch == "task" else 3):
            node, local = (task // 2, task % 2) if launch == "task" else (task, 0)
            own = exports(PYTORCH.task_script(place(launch)), task, node, local)
            expected = (
                node_variables(ALLOCATION, task, 29400) if launch == "node" else rank_variables(ALLOCATION, task, 29400)
            )
            assert shared | own == expected, launch


GROUPED = Shape(nodes=3, slots=1, groups=(Group(1, 1, 8), Group(2, 4)))
ONE, TWO = "srun --het-group=0 --nodes=1 ", "--kill-on-bad-exit=1 --export=ALL : --het-group=1 --nodes=2 "


def test_a_step_over_the_groups_of_a_heterogeneous_job() -> None:
    """Each group is told of by itself: its nodes, its tasks, and the CPUs of each task of its own."""
    end = "--kill-on-bad-exit=1 --export=ALL torchrun x"
    one_a_node = "--ntasks=1 --ntasks-per-node=1", "--ntasks=2 --ntasks-per-node=1"
    assert argv("torchrun x", GROUPED) == f"{ONE}{one_a_node[0]} {TWO}{one_a_node[1]} {end}"
    ranks = "--ntasks=1 --ntasks-per-node=1 --cpus-per-task=8", "--ntasks=8 --ntasks-per-node=4"
    assert argv("torchrun x", GROUPED._replace(launch="task")) == f"{ONE}{ranks[0]} {TWO}{ranks[1]} {end}"
    assert "once a node, 1,4 rank(s) each" in PYTORCH.launch(("python", "x.py"), GROUPED).note


def test_every_task_of_unlike_nodes_finds_what_hostfiles_says_of_it() -> None:
    """SLOTS and LOCAL_WORLD_SIZE are each node's own."""
    for launch in ["node", "task"]:
        allocation = Allocation((Host("n1", 1, 1), Host("n2", 4, 4), Host("n3", 4, 4), Host("n4", 2, 2)), 17)
        there = place(launch, allocation)._replace(grouped=True)
        shared, script = PYTORCH.variables(there), PYTORCH.task_script(there)
        assert not {"SLOTS", "LOCAL_WORLD_SIZE"} & shared.keys(), launch
        for task in range(allocation.tasks if launch == "task" else 4):
            node, local = allocation.places[task] if launch == "task" else (task, 0)
            of = rank_variables if launch == "task" else node_variables
            assert shared | exports(script, task, node, local) == of(allocation, task, 29400), launch


def test_unlike_numbers_of_tasks_are_refused() -> None:
    """One LOCAL_WORLD_SIZE for all would be a lie on some node."""
    uneven = Allocation((Host("n1", 2, 2), Host("n2", 2, 1)))
    with pytest.raises(UsageError, match="unlike numbers of tasks"):
        PYTORCH.variables(place("task", uneven))
