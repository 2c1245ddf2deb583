"""The deployed commands on a node without packages, with the system's interpreter."""

import json
import subprocess
from pathlib import Path

import pytest

from slurm_plugin.site.configuration import SiteConfig
from slurm_plugin.site.files import render_site

NOTHING = {"PATH": "/nonexistent"}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the deployed command, with a site's own settings."""
    root = tmp_path_factory.mktemp("site")
    render_site(SiteConfig(max_retries=4), root, root=str(root))
    return root / "bin" / "slurm-plugin"


def run(program: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run it without variables, packages or Slurm's commands."""
    return subprocess.run([program, *words], capture_output=True, text=True, check=False, cwd="/", env=NOTHING)


def test_check(program: Path) -> None:
    """`check` uses the deployed settings."""
    done = run(program, "check", "mounts.paths", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["items"][0]["verdict"] == "skipped"
    done = run(program, "check", "--list", "--json", "dns")
    assert json.loads(done.stdout)["source"] == str(program.parents[1] / "compiled.json")


def test_a_site_file_needs_the_package(program: Path) -> None:
    """--config needs the package: exit 3, and the command that installs it."""
    done = run(program, "check", "--config", "/etc/hostname")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == (
        "slurm-plugin: /etc/hostname: a site file cannot be read here, only the node side is installed\n"
        "  run: pip install slurm_plugin\n"
    )


def test_why(program: Path) -> None:
    """`why` needs Slurm's commands on the PATH: exit 3 without them."""
    done = run(program, "why", "n1")
    assert (done.returncode, done.stdout) == (3, ""), done.stderr
    assert "was not found on the PATH" in done.stderr
