"""Mirrors slurm_plugin/launch/deepspeed.py: DeepSpeed's launcher once on each node, always with the job's hosts."""

import base64
import json
import re
import shlex

import pytest

from slurm_plugin.errors import UsageError
from slurm_plugin.launch import MODES, Place, Shape
from slurm_plugin.launch.deepspeed import DEEPSPEED, PYTHON
from tests.refusals import refusal_of
from tests.unit.launch.test_mpi import PLACE

MODE = MODES["deepspeed"]
SHAPE = Shape(nodes=2, slots=4, hostfile="/w/hostfile")
SRUN = "srun --nodes=2 --ntasks=2 --ntasks-per-node=1 --kill-on-bad-exit=1 --export=ALL"


def argv(command: str, shape: Shape = SHAPE) -> str:
    """Return the launch of a command, as for a shell."""
    return shlex.join(MODE.launch(tuple(shlex.split(command)), shape).argv)


LAUNCHED = {
    "python train.py --x 1": "python train.py --x 1",
    "/opt/env/bin/python3 -u -m pkg.train x": "/opt/env/bin/python3 --module pkg.train x",
    "python -X dev train.py": "python --no_local_rank --no_python python -X dev train.py",
}


def test_python_is_started_by_deepspeeds_launcher() -> None:
    """Once on each node, with the user's own interpreter."""
    for command, wanted in LAUNCHED.items():
        assert argv(command) == f"{SRUN} bash -p -c {shlex.quote(PYTHON)} {wanted}", command


def test_deepspeed_is_started_once_a_node_without_ssh() -> None:
    """Our options come first: the later of two wins, so that the user's do."""
    command = "/opt/env/bin/deepspeed --master_port 5 train.py --deepspeed"
    assert argv(command) == f"{SRUN} bash -p -c {shlex.quote(DEEPSPEED)} {command}"


def test_a_launcher_of_its_own_is_started_once_with_our_hostfile() -> None:
    """Without one it would warn, and train on only one node."""
    command = "deepspeed --launcher=openmpi train.py"
    assert argv(command) == "deepspeed --hostfile=/w/hostfile --launcher=openmpi train.py"


def test_options_that_choose_nodes_are_refused() -> None:
    """The excluded nodes would end DeepSpeed with an assertion."""
    for option in ["--num_nodes 1", "--include=n1", "-e n2"]:
        assert re.search(
            "the nodes are the job's own: set `nodes:` instead",
            refusal_of(UsageError, argv, f"deepspeed {option} train.py"),
        ), option


def test_options_of_the_program_are_its_own() -> None:
    """Words after the program's file are not DeepSpeed's."""
    for rest in ("--launcher pytorch", "-e 90", "--include x"):
        started = f"{SRUN} bash -p -c {shlex.quote(DEEPSPEED)}"
        assert argv(f"deepspeed train.py {rest}") == f"{started} deepspeed train.py {rest}"


def test_in_a_shell_it_has_to_name_its_hostfile() -> None:
    """No option can be added there."""
    with pytest.raises(UsageError, match=r"deepspeed --hostfile=\$SLURM_PLUGIN_HOSTFILE"):
        argv("bash -c 'cd x; deepspeed train.py'")
    once = "bash -c 'deepspeed --hostfile=$SLURM_PLUGIN_HOSTFILE --launcher slurm train.py'"
    assert argv(once) == once
    each = "bash -c 'deepspeed --no_ssh --node_rank $RANK train.py'"
    assert argv(each) == f"{SRUN} {each}"


def test_anything_else_is_left_alone_once_a_node() -> None:
    """As in mode pytorch."""
    for command in ["./train.sh", "torchrun train.py", "python -m torch.distributed.run t.py"]:
        assert argv(command) == f"{SRUN} {command}", command


def test_a_program_with_deepspeed_in_its_name_is_a_program() -> None:
    """Only the exact word is DeepSpeed's command."""
    for word in ("deepspeed_train.py", "/opt/deepspeed/train.py", "--deepspeed", "--strategy=deepspeed", "deepspeed"):
        assert argv(f"python train.py {word}") == f"{SRUN} bash -p -c {shlex.quote(PYTHON)} python train.py {word}"


def test_the_hosts_and_their_ranks() -> None:
    """The hostfile, and the same in the launcher's form (`world_info`: base64 of JSON)."""
    assert MODE.files(PLACE) == {"hostfile": "n1 slots=2\nn2 slots=4\n"}
    variables = dict(MODE.variables(PLACE))
    info = json.loads(base64.urlsafe_b64decode(variables.pop("SLURM_PLUGIN_WORLD_INFO")))
    assert info == {"n1": [0, 1], "n2": [0, 1, 2, 3]}
    assert variables == MODES["pytorch"].variables(PLACE)


def test_a_task_a_rank_has_pytorchs_variables() -> None:
    """DeepSpeed reads them as torch.distributed does."""
    task = Place(PLACE.allocation, 61000, "/w", launch="task")
    assert MODE.variables(task) == MODES["pytorch"].variables(task)
    launch = MODE.launch(("python", "t.py"), Shape(2, 4, "task"))
    assert launch == MODES["pytorch"].launch(("python", "t.py"), Shape(2, 4, "task"))


def test_started_by_another_program_it_has_to_name_its_hostfile() -> None:
    """Else each node would train alone. `--no_ssh_check` is another option than `--no_ssh`."""
    for before in ["env A=1 deepspeed", "uv run deepspeed", "conda run -n e deepspeed", "python -m deepspeed"]:
        assert "deepspeed --hostfile=$SLURM_PLUGIN_HOSTFILE" in refusal_of(UsageError, argv, f"{before} train.py")
        once = f"{before} --hostfile=/w/hostfile train.py"
        assert argv(once) == once
        each = f"{before} --no_ssh train.py"
        assert argv(each) == f"{SRUN} {each}"
    alone = "python -m deepspeed train.py"
    assert argv(alone, Shape(nodes=1, slots=4)).endswith(f" {alone}")
    for command in ["python -m deepspeed.launcher.runner t.py", "bash -c 'deepspeed --no_ssh_check t.py'"]:
        assert "where it finds no hostfile and trains on one node" in refusal_of(UsageError, argv, command), command


def test_options_of_a_program_without_py_are_its_own() -> None:
    """A module, and with `--no_python` any program."""
    started = f"{SRUN} bash -p -c {shlex.quote(DEEPSPEED)}"
    for command in (
        "deepspeed --module pkg.train -e 5 --launcher x",
        "deepspeed --num_gpus 2 --no_python ./run.sh -i in.txt",
        "deepspeed --a_new_flag train.py -e 5",
    ):
        assert argv(command) == f"{started} {command}", command
    assert "found --include" in refusal_of(UsageError, argv, "deepspeed --num_gpus 2 --include n1 --module pkg.train")
