"""What goes with the mode of a spec, and with its launcher, and what does not."""

import pytest

from slurm_plugin.spec import load
from tests.unit.test_spec import refusal

MODE_PROBLEMS = {
    "mode: single\nnodes: 2": "nodes: found 2; mode single accepts: 1; modes with more: openmpi, mpich, intelmpi,"
    " horovod, pytorch, deepspeed, tensorflow, ascend, script",
    "mode: ascend\nlaunch: task": "launch: found 'task'; mode ascend accepts: node; modes openmpi, mpich, intelmpi,"
    " pytorch, deepspeed, tensorflow: node, task",
    "mode: tensorflow\ntensorflow: {ps: 1}": "tensorflow: found 1 servers, chief and evaluator in 1 task(s); accepted:"
    " fewer, one is a worker",
}


@pytest.mark.parametrize("text", MODE_PROBLEMS)
def test_what_does_not_go_with_the_mode(text: str) -> None:
    """Each with what the mode accepts."""
    said = refusal(f"name: a\ncommand: x\n{text}\n")
    assert said.splitlines()[1].partition(": ")[2] == MODE_PROBLEMS[text]


GRACE_PROBLEMS = {
    ("pytorch", "python train.py"): ("torch.distributed.run", ""),
    ("pytorch", "python -m torch.distributed.run train.py"): (
        "torch.distributed.run",
        " and the command without torch.distributed.run",
    ),
    ("pytorch", "torchrun train.py"): ("torchrun", " and the command without torchrun"),
    ("pytorch", "uv run torchrun train.py"): ("torchrun", " and the command without torchrun"),
    ("pytorch", "/opt/env/bin/accelerate launch train.py"): ("accelerate", " and the command without accelerate"),
    ("deepspeed", "python train.py"): ("deepspeed.launcher.launch", ""),
    ("deepspeed", "deepspeed train.py"): ("deepspeed", " and the command without deepspeed"),
}


@pytest.mark.parametrize(("mode", "command"), GRACE_PROBLEMS)
def test_grace_with_a_launcher_that_the_signal_ends(mode: str, command: str) -> None:
    """The program would be ended by its checkpoint signal, whatever it does with it; what to write instead."""
    launcher, bare = GRACE_PROBLEMS[mode, command]
    text = f"name: a\nmode: {mode}\ncommand: {command}\n"
    assert refusal(f"{text}grace: 2m\n").splitlines()[1] == (
        f"  line 4: grace: found it with {launcher}, which SIGUSR1 ends before the program can save; "
        f"write `launch: task`{bare}, or leave it out"
    )
    load(text.encode(), "job.yaml")


@pytest.mark.parametrize(
    "text",
    [
        "mode: pytorch\ncommand: python train.py\nlaunch: task",
        "mode: deepspeed\ncommand: python train.py\nlaunch: task",
        "mode: pytorch\ncommand: ./train",
        "mode: pytorch\ncommand: bash -c 'trap x USR1; torchrun train.py & wait'",
        "mode: pytorch\ncommand: bash train.sh --backend accelerate",
        "mode: pytorch\ncommand: srun python train.py",
        "mode: pytorch\ncommand: python train.py\nenv: {PET_SIGNALS_TO_HANDLE: 'SIGTERM,SIGUSR1'}",
        "mode: pytorch\ncommand: torchrun --signals-to-handle=SIGTERM,SIGUSR1 train.py",
        "mode: openmpi\ncommand: python train.py",
        "mode: single\ncommand: python train.py",
    ],
)
def test_grace_where_the_signal_may_arrive(text: str) -> None:
    """One task a rank, no such launcher, one that hands it on, or a shell that may."""
    assert load(f"name: a\n{text}\ngrace: 2m\n".encode(), "job.yaml").grace == "2m"
