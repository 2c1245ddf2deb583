"""Where .ci/consumers put what it fetched. Without it these tests are not collected: ./test needs no other package."""

import os
from pathlib import Path
from typing import NamedTuple

import pytest

VARIABLE = "SLURM_PLUGIN_CONSUMERS"
collect_ignore_glob = [] if VARIABLE in os.environ else ["test_*.py"]


class Consumers(NamedTuple):
    """The unpacked source packages, and an interpreter that has TensorFlow."""

    horovod: Path
    deepspeed: Path
    tensorflow: Path


@pytest.fixture(scope="session")
def consumers() -> Consumers:
    """What .ci/consumers names."""
    found = Consumers(*map(Path, os.environ[VARIABLE].split(":")))
    assert all(path.exists() for path in found), found
    return found
