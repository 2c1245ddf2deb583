"""What stands on a node, where no package is: the same commands, on the system's own interpreter."""

import json
import subprocess
from pathlib import Path

import pytest

from slurm_plugin.site import render_site
from slurm_plugin.siteconfig import SiteConfig

NOTHING = {"PATH": "/nonexistent"}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The deployed command, with a site's own settings."""
    root = tmp_path_factory.mktemp("site")
    render_site(SiteConfig(max_retries=4), root, root=str(root))
    return root / "bin" / "slurm-plugin"


def run(program: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """Without a variable, a package or a command of Slurm's."""
    return subprocess.run(
        [program, *words], capture_output=True, text=True, timeout=60, check=False, cwd="/", env=NOTHING
    )


def test_check(program: Path) -> None:
    """With the settings that are deployed beside it."""
    done = run(program, "check", "mounts.paths", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["items"][0]["verdict"] == "skipped"
    done = run(program, "check", "--list", "--json", "dns")
    assert json.loads(done.stdout)["source"] == str(program.parents[1] / "compiled.json")


def test_a_site_file_needs_the_package(program: Path) -> None:
    """Exit 3, and how to get it."""
    done = run(program, "check", "--config", "/etc/hostname")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == (
        "slurm-plugin: /etc/hostname: a site file cannot be read here, only the node side is installed\n"
        "  run: pip install slurm_plugin\n"
    )


def test_why(program: Path) -> None:
    """Slurm's commands are looked for on the PATH, as everywhere; without them exit 3."""
    done = run(program, "why", "n1")
    assert (done.returncode, done.stdout) == (3, ""), done.stderr
    assert "was not found on the PATH" in done.stderr
