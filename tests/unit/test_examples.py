"""The examples of programs that resume: run for real, told to save, killed, and run again."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
WITHOUT_END = "100000000"
Process = subprocess.Popen[str]


@contextmanager
def running(name: str, checkpoint: Path, steps: str, **environ: str) -> Iterator[Process]:
    """Yield a process of an example. End it at the end."""
    words = [sys.executable, str(EXAMPLES / f"{name}.py")]
    given = {"STEPS": steps, "STEP_S": "0", "SLURM_PLUGIN_CHECKPOINT": str(checkpoint), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(words, env={**os.environ, **given, **environ}, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def lines(process: Process) -> list[str]:
    """Return the output of a process that must succeed."""
    out, _ = process.communicate()
    assert process.returncode == 0
    return out.splitlines()


def saved(process: Process) -> int:
    """Return the step of the next checkpoint in its output."""
    assert process.stdout
    line = process.stdout.readline()
    found = re.fullmatch(r"saved step (\d+)\n", line)
    assert found, line
    return int(found[1])


def saved_when_told(process: Process) -> int:
    """Send SIGUSR1 and return the step of the first checkpoint that is not a regular one, made each tenth step."""
    while (step := saved(process)) % 10 == 0:
        process.send_signal(signal.SIGUSR1)  # again if the last one came during a regular checkpoint
    return step


def goes_on(name: str, directory: Path, ranks: tuple[dict[str, str], ...]) -> None:
    """On SIGUSR1 it saves between two checkpoints and goes on. Killed and restarted, it ends like a whole run."""

    def run(stack: ExitStack, checkpoint: str, steps: str, **environ: str) -> list[Process]:
        together = addresses() if len(ranks) > 1 else {}
        return [
            stack.enter_context(running(name, directory / checkpoint, steps, **together, **rank, **environ))
            for rank in ranks
        ]

    with ExitStack() as stack:
        first, *others = run(stack, "cut", WITHOUT_END, STEP_S="0.02")
        told = saved_when_told(first)
        while saved(first) % 10:
            pass  # the checkpoint of a repeated SIGUSR1
        for process in (first, *others):
            process.kill()
        assert first.stdout
        steps = str(max([told, *map(int, re.findall(r"saved step (\d+)\n", first.stdout.read()))]) + 30)
    with ExitStack() as stack:
        restart = {"SLURM_PLUGIN_RESTART": "1", "SLURM_PLUGIN_REASON": "n2 died"}
        first, *others = run(stack, "cut", steps, **restart)
        begin, *_, end = lines(first)
        assert [lines(process) for process in others] == [[] for _ in others]
    found = re.fullmatch(r"restarted: n2 died; on from step (\d+)", begin)
    assert found, begin
    assert int(found[1]) > told
    with ExitStack() as stack:
        first, *others = run(stack, "whole", steps)
        assert lines(first)[-1] == end
    assert end.startswith("done: ")


def addresses() -> dict[str, str]:
    """Return the rendezvous of two ranks."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return {
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "GLOO_SOCKET_IFNAME": "lo",
    }  # fmt: skip


def test_plain_python_goes_on(tmp_path: Path) -> None:
    """With a checkpoint in JSON."""
    goes_on("resume", tmp_path, ({},))


@pytest.mark.full  # over 5 s
@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed in this environment")
def test_two_ranks_of_pytorch_go_on(tmp_path: Path) -> None:
    """Both load rank 0's checkpoint. A single process without a group trains, too."""
    goes_on("resume_torch", tmp_path, ({"RANK": "0"}, {"RANK": "1"}))
    with running("resume_torch", tmp_path / "alone", "3") as alone:
        assert lines(alone)[-1].startswith("done: ")
