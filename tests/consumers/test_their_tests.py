"""The Slurm tests of other projects, unchanged, with the pytest plug-in of our wheel. Run by .ci/consumers."""

import re
import shutil
import zipfile
from pathlib import Path

import pytest

from tests import wheels
from tests.cluster.test_clients import WAITS
from tests.fetched import Consumers

pytestmark = pytest.mark.cluster

HELPERS = Path(__file__).with_name("psij_tools.py")


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory for PYTHONPATH with the content of our wheel."""
    directory = tmp_path_factory.mktemp("wheel")
    with zipfile.ZipFile(wheels.built(directory)) as archive:
        archive.extractall(directory / "packages")
    return directory / "packages"


def run(consumers: Consumers, packages: Path, directory: Path, *words: str) -> str:
    """Run pytest in the environment of the clients, on a sandbox. Return its output; fail with it."""
    argv = [str(consumers.clients_python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "--slurm-sandbox"]
    # Programs that submit jobs keep files in the home directory, which the machines must see.
    environ = {"PYTHONPATH": f"{packages}:{directory}", "HOME": str(directory)}
    return wheels.run([*argv, *words], directory, environ)


def test_dask_jobqueue(consumers: Consumers, packages: Path, tmp_path: Path) -> None:
    """The Slurm tests of dask-jobqueue pass. Its workers reach the scheduler in the test's process.

    Two are left out. One needs the interfaces `eth0:scheduler` and `eth0:worker` of dask-jobqueue's own containers. The
    program of the other, `test_slurm_runner`, uses worker 2 before it waits for it: it fails where worker 3 is faster
    (1 of 25 runs), and hangs where a worker starts after the scheduler's end, which it then awaits for ever.
    """
    (tmp_path / "waits.py").write_text(WAITS)
    words = ["-p", "waits", "-k", "not interfaces and not runner", "--pyargs", "dask_jobqueue.tests.test_slurm"]
    said = run(consumers, packages, tmp_path, *words)
    assert re.search(r"^7 passed, 2 deselected", said, re.MULTILINE), said


def test_psij(consumers: Consumers, packages: Path, tmp_path: Path) -> None:
    """The tests of psij-python that submit jobs pass with Slurm."""
    shutil.copy(HELPERS, tmp_path / "_test_tools.py")
    (tmp_path / "executor_test_params.py").write_text("from _test_tools import ExecutorTestParams\n")
    files = [str(consumers.psij / f"tests/test_{name}.py") for name in ("executor", "resources", "issue_435")]
    said = run(consumers, packages, tmp_path, "-p", "_test_tools", "--rootdir", str(tmp_path), *files)
    assert re.search(r"^23 passed", said, re.MULTILINE), said
