"""What tests of the command line share: a directory of their own, and a site that no machine has."""

import os
from pathlib import Path

import pytest

NO_SITE = "command: /nonexistent/slurm-plugin\n"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The test's own directory, where it stands; `site.yaml` in it is the site file. No variable speaks for sbatch."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("SBATCH_")]:
        monkeypatch.delenv(name)
    (tmp_path / "site.yaml").write_text(NO_SITE)
    monkeypatch.setenv("SLURM_PLUGIN_CONFIG", str(tmp_path / "site.yaml"))
    return tmp_path
