"""Mirrors slurm_plugin/hooks/behind.py: real processes."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.hooks import behind, marker


@pytest.fixture
def site(tmp_path: Path) -> dict[str, Any]:
    """Where this node remembers."""
    return {"prechecks": {"state": str(tmp_path / "run/state")}}


def test_there_until_it_ends(site: dict[str, Any]) -> None:
    """One that has ended and that nobody has waited for has left the file system, too."""
    assert behind.there(site, "x") == 0
    with subprocess.Popen(["sleep", "60"], stdout=subprocess.PIPE) as process:
        behind.remember(site, "x", process.pid)
        assert behind.there(site, "x") == process.pid
        assert behind.there(site, "y") == 0
        process.kill()
        assert process.stdout
        process.stdout.read()  # until it has closed its files
        assert behind.there(site, "x") in (0, process.pid)
    assert behind.there(site, "x") == 0


def test_another_one_of_that_number(site: dict[str, Any]) -> None:
    """Is not the one that was left behind; nor is one that had ended before it was remembered."""
    with subprocess.Popen(["sleep", "60"]) as process:
        marker.keep(site, "x", {"pid": process.pid, "started": "1"})
        assert behind.there(site, "x") == 0
        process.kill()
    behind.remember(site, "x", process.pid)
    assert behind.there(site, "x") == 0
