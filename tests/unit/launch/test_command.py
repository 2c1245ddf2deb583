"""Mirrors slurm_plugin/launch/command.py: the launcher and program that a user's command names."""

import shlex

from slurm_plugin.launch.command import plain_python, shell_text, started, text_follows

STARTED = {
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
    "python -mtorch.distributed.run train.py": "torch.distributed.run",
    "env python -um torch.distributed.run train.py": "torch.distributed.run",
    "env python3 -m accelerate.commands.launch train.py": "accelerate.commands.launch",
    "python /opt/env/bin/torchrun train.py": "torchrun",
    "python train.py --backend accelerate": "train.py",
    "python -u": "",
    "python": "",
    "env LAUNCHER=torchrun bash train.sh torchrun": "bash",
    "./train.sh torchrun": "train.sh",
    "nice -n torchrun ./train.sh": "train.sh",
    "env python train.py torchrun": "train.py",
    "bash -c 'torchrun train.py'": "bash",
    "srun torchrun train.py": "srun",
    "env": "",
    "timeout 5": "",
}


def test_what_a_command_starts_in_the_end() -> None:
    """After programs that start another one, with their options. A word that only mentions a launcher starts none."""
    for command, wanted in STARTED.items():
        assert started(tuple(shlex.split(command))) == wanted, command


PYTHON = {
    "python -um pkg -um x": "python -u -m pkg -um x",
    "python -mpkg x": "python -m pkg x",
    "python -uBmpkg": "python -u -B -m pkg",
    "python -uWignore -X dev train.py -mx": "python -u -W ignore -X dev train.py -mx",
    "python -c 'import x' -um y": "python -c 'import x' -um y",
    "python --check-hash-based-pycs never -bm x": "python --check-hash-based-pycs never -b -m x",
    "python - -um x": "python - -um x",
    "python -m": "python -m",
    "bash -um x": "bash -um x",
}


def test_options_of_the_interpreter() -> None:
    """Each is a separate word, up to the program."""
    for command, wanted in PYTHON.items():
        assert shlex.join(plain_python(tuple(shlex.split(command)))) == wanted, command


def test_the_text_of_a_shell() -> None:
    """Also after a program that starts the shell. Another program's -c is no shell text."""
    assert shell_text(("env", "A=1", "bash", "-lc", "x y", "z")) == "x y"
    assert shell_text(("taskset", "-c", "0", "python", "x.py")) == ""
    assert text_follows(["nice", "bash", "-xec"])
    assert not text_follows(["bash", "-c", "x", "-c"])
    assert not text_follows(["taskset", "-c"])
    assert not text_follows([])
