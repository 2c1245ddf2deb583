"""Mirrors slurm_plugin/modes/pytorch.py: what is launched for a command, and what each task finds."""

import shlex

import pytest

from hostfiles import Allocation, Host
from hostfiles.pytorch import node_variables, rank_variables
from slurm_plugin.errors import UsageError
from slurm_plugin.modes import MODES, Group, Place, Shape
from slurm_plugin.modes.pytorch import LAUNCHER
from tests.unit.modes.tasks import exports

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
    "python -c 'print(1)'": "python --no_python python -c 'print(1)'",
}


@pytest.mark.parametrize("command", LAUNCHED)
def test_python_is_started_through_the_launcher_of_that_python(command: str) -> None:
    """Row C3: once a node, with the user's own interpreter."""
    assert argv(command) == f"{NODE}bash -c {shlex.quote(LAUNCHER)} {LAUNCHED[command]}"


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
    assert argv(command) == NODE + command


@pytest.mark.parametrize("command", ["srun --ntasks=4 x", "mpirun x"])
def test_a_command_that_starts_its_own_tasks_is_started_once(command: str) -> None:
    """srun and mpirun reach the other nodes by themselves."""
    assert argv(command) == command


def test_launch_task_is_one_task_a_rank() -> None:
    """`launch: task`: the user's command as it is, one task a slot."""
    task = Shape(nodes=4, slots=8, launch="task")
    assert argv("python train.py", task) == (
        "srun --nodes=4 --ntasks=32 --ntasks-per-node=8 --kill-on-bad-exit=1 --export=ALL python train.py"
    )


def test_the_task_script_of_a_launcher() -> None:
    """One builtin; MASTER_ADDR and the counts travel in the environment of srun."""
    assert PYTORCH.files(place()) == {}
    assert PYTORCH.task_script(place()) == "printf 'export %s\\n' \"RANK=$SLURM_NODEID\"\n"
    assert PYTORCH.variables(place()) == {
        "MASTER_ADDR": "n1",
        "MASTER_PORT": "29400",
        "WORLD_SIZE": "3",
        "SLOTS": "2",
    }


@pytest.mark.parametrize("launch", ["node", "task"])
def test_every_task_finds_what_hostfiles_says_of_it(launch: str) -> None:
    """Environment and TaskProlog together give each task exactly the variables of hostfiles.pytorch."""
    shared = PYTORCH.variables(place(launch))
    for task in range(6 if launch == "task" else 3):
        node, local = (task // 2, task % 2) if launch == "task" else (task, 0)
        own = exports(PYTORCH.task_script(place(launch)), task, node, local)
        expected = (
            node_variables(ALLOCATION, task, 29400) if launch == "node" else rank_variables(ALLOCATION, task, 29400)
        )
        assert shared | own == expected


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


@pytest.mark.parametrize("launch", ["node", "task"])
def test_every_task_of_unlike_nodes_finds_what_hostfiles_says_of_it(launch: str) -> None:
    """SLOTS and LOCAL_WORLD_SIZE are each node's own."""
    allocation = Allocation((Host("n1", 1, 1), Host("n2", 4, 4), Host("n3", 4, 4), Host("n4", 2, 2)), 17)
    there = place(launch, allocation)._replace(grouped=True)
    shared, script = PYTORCH.variables(there), PYTORCH.task_script(there)
    assert not {"SLOTS", "LOCAL_WORLD_SIZE"} & shared.keys()
    for task in range(allocation.tasks if launch == "task" else 4):
        node, local = allocation.places[task] if launch == "task" else (task, 0)
        of = rank_variables if launch == "task" else node_variables
        assert shared | exports(script, task, node, local) == of(allocation, task, 29400)


def test_unlike_numbers_of_tasks_are_refused() -> None:
    """One LOCAL_WORLD_SIZE for all would be a lie on some node."""
    uneven = Allocation((Host("n1", 2, 2), Host("n2", 2, 1)))
    with pytest.raises(UsageError, match="unlike numbers of tasks"):
        PYTORCH.variables(place("task", uneven))


ENDED = {
    "torchrun train.py": "torchrun",
    "/opt/env/bin/accelerate launch train.py": "accelerate",
    "env -u LANG OMP_NUM_THREADS=1 torchrun train.py": "torchrun",
    "env - torchrun train.py": "torchrun",
    "numactl --cpunodebind=0 -m 0 torchrun train.py": "torchrun",
    "nice -n 5 numactl --membind 0 accelerate launch train.py": "accelerate",
    "taskset -c 0-3 torchrun train.py": "torchrun",
    "timeout -k 5 --signal=INT 1h torchrun train.py": "torchrun",
    "uv run --with numpy -- torchrun train.py": "torchrun",
    "uv --project p run python -m torch.distributed.run train.py": "torch.distributed.run",
    "conda run -n env --live-stream torchrun train.py": "torchrun",
    "python -X dev -m torch.distributed.run train.py": "torch.distributed.run",
    "env python3 -m accelerate.commands.launch train.py": "accelerate.commands.launch",
    "python /opt/env/bin/torchrun train.py": "torchrun",
    "python train.py": "torch.distributed.run",
    "python train.py --backend accelerate": "torch.distributed.run",
    "python -u": "torch.distributed.run",
    "python": "",
    "bash train.sh --backend accelerate": "",
    "bash train.sh --log /tmp/torchrun": "",
    "env LAUNCHER=torchrun bash train.sh torchrun": "",
    "./train.sh torchrun": "",
    "nice -n torchrun ./train.sh": "",
    "env python train.py torchrun": "",
    "bash -c 'torchrun train.py'": "",
    "srun torchrun train.py": "",
    "env": "",
    "timeout 5": "",
}


@pytest.mark.parametrize("command", ENDED)
def test_what_sigusr1_ends(command: str) -> None:
    """The launcher that the command starts, or that we start for it; a word that only names one starts none."""
    assert PYTORCH.ended_by_usr1(tuple(shlex.split(command)), SHAPE) == ENDED[command]
    assert PYTORCH.ended_by_usr1(tuple(shlex.split(command)), Shape(nodes=4, slots=8, launch="task")) == ""
