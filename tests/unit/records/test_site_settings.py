"""The compiled settings, and the lease."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from slurm_plugin.records.site_settings import ARCHIVE, FILE, VERSION, beat_period, plugin_command, slurm_bin


def test_beat_period() -> None:
    """At most 64 guards answer one beat, and each guard answers at least every eighth."""
    found = {nodes: beat_period(nodes) for nodes in (1, 64, 65, 128, 129, 10_000)}
    assert found == {1: 1, 64: 1, 65: 2, 128: 2, 129: 3, 10_000: 8}


def test_the_directory_of_slurms_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The deployed site's; none if the site is not deployed, or if its file cannot be read."""
    monkeypatch.setattr(sys, "path", [str(tmp_path / ARCHIVE)])
    assert slurm_bin() == ""
    (tmp_path / ARCHIVE).touch()
    assert slurm_bin() == ""
    (tmp_path / FILE).write_text(json.dumps({"v": VERSION, "slurm_bin": "/opt/slurm/bin"}))
    assert slurm_bin() == "/opt/slurm/bin"
    (tmp_path / FILE).write_text("no JSON")
    assert slurm_bin() == ""


def test_a_python_that_ignores_its_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """So do those on the other nodes: a module's PYTHONHOME is for the program."""
    assert plugin_command()[1] == "-P"
    monkeypatch.setattr(sys, "flags", SimpleNamespace(ignore_environment=1))
    assert plugin_command() == [sys.executable, "-EP", "-m", "slurm_plugin"]


def test_a_users_file_with_the_name_of_a_module(tmp_path: Path) -> None:
    """A step of a job, which starts in the job's directory, does not import it."""
    for name in ("json", "types", "typing", "argparse", "hostfiles"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(9)\n")
    done = subprocess.run([*plugin_command(), "job", "guard", "--help"], capture_output=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
