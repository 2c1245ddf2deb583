"""Faults of the sandbox without a sandbox: what is missing is named, and the check that flaps does."""

import os
import subprocess
from pathlib import Path

import pytest

from slurm_plugin.errors import MissingError, SlurmPluginError
from slurm_plugin.sandbox import faults
from slurm_plugin.sandbox.faults import FAULTS, Node


def test_a_mount_that_hangs_needs_fuse(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A kernel without it: exit code 3, and the command that may help."""
    monkeypatch.setattr(faults, "FUSE", str(tmp_path / "fuse"))
    with pytest.raises(MissingError, match="modprobe fuse"):
        FAULTS["hung-mount"].make(Node("n1", os.getpid(), "", 0))


@pytest.mark.parametrize(
    "fault", [name for name in FAULTS if name not in ("hung-mount", "gpu-missing", "slurmd-dead", "node-dead")]
)
def test_a_dead_node_takes_no_fault(fault: str) -> None:
    """It is told how to get the node back."""
    with pytest.raises(SlurmPluginError, match="n1 "):
        FAULTS[fault].make(Node("n1", None, "", 0))


def test_the_check_that_flaps(tmp_path: Path) -> None:
    """It passes without the fault, then fails at every other look, the first one among them."""
    state, script = tmp_path / "flapping", tmp_path / "check"
    script.write_text(faults.FLAPPING_CHECK.replace(faults.FLAPPING, str(state)))

    def looks(number: int) -> list[tuple[int, str]]:
        done = [subprocess.run(["/bin/sh", script], capture_output=True, text=True, check=False) for _ in range(number)]
        return [(each.returncode, each.stdout + each.stderr) for each in done]

    assert looks(2) == [(0, "")] * 2
    assert not state.exists()
    state.touch()
    fails, passes = (1, "this look fails, the next one passes\n"), (0, "this look passes, the next one fails\n")
    assert looks(5) == [fails, passes, fails, passes, fails]
