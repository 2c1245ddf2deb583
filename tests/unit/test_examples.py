"""The examples that show how a program goes on: run for real, interrupted, and run again."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
STEPS = "25"
TORCH = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed in this environment")
EACH = pytest.mark.parametrize("name", ["resume", pytest.param("resume_torch", marks=TORCH)])


@contextmanager
def running(name: str, checkpoint: Path, step_s: str = "0", **environ: str) -> Iterator["subprocess.Popen[str]"]:
    """One process of an example; gone at the end."""
    words = [sys.executable, str(EXAMPLES / f"{name}.py")]
    given = {"STEPS": STEPS, "STEP_S": step_s, "SLURM_PLUGIN_CHECKPOINT": str(checkpoint), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(words, env={**os.environ, **given, **environ}, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def said(process: "subprocess.Popen[str]") -> list[str]:
    """All the lines of one that ends well."""
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return out.splitlines()


def until(process: "subprocess.Popen[str]", line: str) -> None:
    """Read up to a line."""
    assert process.stdout
    found = next((each for each in process.stdout if each == f"{line}\n"), None)
    assert found, f"it ended without {line!r}"


@EACH
def test_one_that_is_killed_goes_on_and_ends_as_one_that_is_not(name: str, tmp_path: Path) -> None:
    """SIGKILL after the first checkpoint; the restart says from where it goes on, and its result is the same."""
    with running(name, tmp_path / "whole") as whole:
        expected = said(whole)[-1]
    with running(name, tmp_path / "cut", step_s="0.02") as cut:
        until(cut, "saved step 10")
    with running(name, tmp_path / "cut", SLURM_PLUGIN_RESTART="1", SLURM_PLUGIN_REASON="n2 died") as again:
        lines = said(again)
    assert lines[0] == "restarted: n2 died; on from step 10"
    assert lines[-1] == expected
    assert expected.startswith("done: ")


@EACH
def test_sigusr1_saves_at_the_next_step(name: str, tmp_path: Path) -> None:
    """Told to save between two checkpoints, it saves at a step that is no multiple of ten, and goes on."""
    with running(name, tmp_path, step_s="0.1") as process:
        until(process, "saved step 10")
        process.send_signal(signal.SIGUSR1)
        assert process.stdout
        assert process.stdout.readline() in ("saved step 11\n", "saved step 12\n")
        assert said(process)[-1].startswith("done: ")


@TORCH
def test_two_ranks_train_with_ddp_and_go_on(tmp_path: Path) -> None:
    """Both load what rank 0 has saved, and end with what two undisturbed ones end with."""

    def result(checkpoint: Path, steps: str) -> str:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": "2"}
        given = {**address, "STEPS": steps, "GLOO_SOCKET_IFNAME": "lo"}
        with (
            running("resume_torch", checkpoint, RANK="0", **given) as first,
            running("resume_torch", checkpoint, RANK="1", **given) as second,
        ):
            lines = said(first)
            assert not said(second)
        return lines[-1]

    expected = result(tmp_path / "whole", STEPS)
    result(tmp_path / "cut", "12")
    assert result(tmp_path / "cut", STEPS) == expected
