"""Fixtures of the command line's tests: a directory, and a site that no machine has."""

import os
from pathlib import Path

import pytest

from slurm_plugin.cli import experiment_submit, specs, submit
from slurm_plugin.cli.nodeside import job_lookup
from tests.unit.cli.searches import SPEC, Door

NO_SITE = "command: /nonexistent/slurm-plugin\n"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current directory, with the site file `site.yaml`. SBATCH_ variables are unset."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("SBATCH_")]:
        monkeypatch.delenv(name)
    (tmp_path / "site.yaml").write_text(NO_SITE)
    monkeypatch.setenv("SLURM_PLUGIN_CONFIG", str(tmp_path / "site.yaml"))
    return tmp_path


@pytest.fixture
def door(home: Path, monkeypatch: pytest.MonkeyPatch) -> Door:
    """Return the door, in a directory with the spec lr.yaml."""
    found = Door()
    found.settings |= {"MaxArraySize": "1001"}
    for module in (specs, submit, experiment_submit, job_lookup):
        monkeypatch.setattr(module, "connect", lambda **_: found)
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    (home / "lr.yaml").write_text(SPEC)
    return found
