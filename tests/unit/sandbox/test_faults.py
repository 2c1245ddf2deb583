"""Faults of the sandbox, without a sandbox."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from slurm_plugin.errors import MissingError, SlurmPluginError
from slurm_plugin.sandbox import faults
from slurm_plugin.sandbox.faults import FAULTS, Node
from tests.refusals import refusal_of


def test_a_mount_that_hangs_needs_fuse(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A kernel without FUSE: MissingError names the command that may help."""
    monkeypatch.setattr(faults, "FUSE", str(tmp_path / "fuse"))
    with pytest.raises(MissingError, match="modprobe fuse"):
        FAULTS["hung-mount"].make(Node("n1", os.getpid(), "", 0))


def test_a_dead_node_takes_no_fault() -> None:
    """The error names the command that brings the node back, in its own sandbox."""
    dead = Node("n1", None, "", 0, Path("/var/tmp/box"))
    assert "run: slurm-plugin sandbox --dir /var/tmp/box heal n1" in refusal_of(SlurmPluginError, dead.root)
    for fault in [name for name in FAULTS if name not in ("hung-mount", "gpu-missing", "slurmd-dead", "node-dead")]:
        assert re.search("n1 ", refusal_of(SlurmPluginError, FAULTS[fault].make, Node("n1", None, "", 0))), fault


def test_the_check_that_flaps(tmp_path: Path) -> None:
    """It passes without the fault; with it, every other run fails, beginning with the first."""
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
