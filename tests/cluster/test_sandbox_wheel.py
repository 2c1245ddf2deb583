"""The sandbox of a wheel whose Python is below a private directory: other users of this machine have no access."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_plugin.sandbox import Sandbox
from tests import wheels
from tests.cluster import their_project
from tests.cluster.conftest import new_directory
from tests.waiting import HANG_S

pytestmark = pytest.mark.cluster

ROOT = os.environ.get("SLURM_PLUGIN_TEST_ROOT")  # a root directory with another release, as for all cluster tests
PRIVATE = 0o700
FIRST_JOB = "slurm-plugin example openmpi-hello >job.yaml && slurm-plugin submit --wait job.yaml"


@pytest.fixture(scope="module")
def private() -> Iterator[Path]:
    """Make a directory below root's home. The machines have a home of root at the same path."""
    directory = Path(tempfile.mkdtemp(prefix=".slurm_plugin-test-", dir="/root"))
    directory.chmod(PRIVATE)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture(scope="module")
def command(private: Path) -> str:
    """Install a wheel there, for an interpreter that is also there, by a link as uv has one. Return `slurm-plugin`."""
    version = f"python{sysconfig.get_python_version()}"
    library = Path(sysconfig.get_path("stdlib"))
    python = private / "pythons/of-a-release"
    shutil.copytree(library, python / "lib" / version, ignore=shutil.ignore_patterns("site-packages", "dist-packages"))
    (python / "bin").mkdir()
    shutil.copy(Path(sys.executable).resolve(), python / "bin" / version)
    (private / "python").symlink_to(python)
    wheels.install(wheels.built(private), str(private / "python/bin" / version), private / "venv")
    return str(private / "venv/bin/slurm-plugin")


@pytest.fixture
def box() -> Iterator[Sandbox]:
    """Return a separate sandbox that is not up."""
    box = Sandbox(new_directory())
    yield box
    box.down()


def call(command: str, box: Sandbox, *words: str) -> subprocess.CompletedProcess[str]:
    """Run `slurm-plugin sandbox` on it."""
    argv = [command, "sandbox", "--dir", str(box.directory), *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=HANG_S, check=False, cwd="/")


@pytest.mark.full  # over 5 s
def test_the_first_job_of_an_installed_wheel(command: str, box: Sandbox) -> None:
    """The sandbox starts, and the first job in the README runs for a user."""
    up = call(command, box, "up", "--nodes", "2", "--gpus", "2", *(["--root", ROOT] if ROOT else []))
    assert up.returncode == 0, up.stderr
    job = call(command, box, "run", "sh", "-c", FIRST_JOB)
    (log,) = (text.read_text() for text in box.home("alice").glob("openmpi-hello-*.out"))
    assert job.returncode == 0, f"{job.stdout}{job.stderr}{log}"
    for rank in range(4):
        assert f"rank {rank} of 4 on n{1 + rank // 2}\n" in log, log


@pytest.mark.full  # over 5 s
def test_a_project_that_tests_with_it(command: str, private: Path) -> None:
    """A project's own tests have a Slurm by a marker, in order again before each test."""
    python = str(Path(command).with_name("python"))
    wheels.add(python, "pytest", private)
    (private / "project/data").mkdir(parents=True)
    shutil.copy(their_project.__file__, private / "project/test_theirs.py")
    settings = ["-o", f"slurm_sandbox_binds={private}/project/data:/data:rw"]
    settings += ["-o", f"slurm_sandbox_release={ROOT}"] if ROOT else []
    argv = [python, "-m", "pytest", "-q", "--strict-markers", f"--basetemp={private}/tmp", *settings]
    done = subprocess.run(argv, cwd=private / "project", capture_output=True, text=True, timeout=HANG_S, check=False)
    assert "1 failed, 5 passed" in done.stdout, done.stdout + done.stderr
    assert "NODELIST STATE REASON\nn1 idle" in done.stdout


@pytest.mark.full  # over 5 s
def test_a_program_that_users_cannot_run_is_said(command: str, box: Sandbox, private: Path) -> None:
    """`up` fails with the reason, and leaves nothing."""
    if ROOT:
        pytest.skip("another root has a Python of its own")
    files = [*(private / "venv").glob("lib/*/site-packages/click/**/__init__*.py*")]  # its bytecode, too
    assert files
    for each in files:
        each.chmod(0o600)
    try:
        up = call(command, box, "up", "--nodes", "1", "--gpus", "0")
    finally:
        for each in files:
            each.chmod(0o644)
    assert up.returncode == 3, up.stderr
    assert "slurm-plugin does not run for the users of the machines: PermissionError" in up.stderr
    assert f"its packages, {private}/venv" in up.stderr
    assert not box.directory.exists()
