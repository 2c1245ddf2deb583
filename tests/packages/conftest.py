"""The packages that .ci/packages built. Without them these tests are not collected: ./test needs no such tools."""

import os
from pathlib import Path

import pytest

VARIABLE = "SLURM_PLUGIN_PACKAGES"
collect_ignore_glob = [] if VARIABLE in os.environ else ["test_*.py"]


@pytest.fixture(scope="session")
def packages() -> Path:
    """Return the directory of two versions of the packages: `first` and `second`."""
    found = Path(os.environ[VARIABLE])
    assert all(len([*(found / name).iterdir()]) == 4 for name in ("first", "second"))
    return found
