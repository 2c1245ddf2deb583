"""What tests of the node's side share."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that every user reaches."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="old-jobs-") as path:
        Path(path).chmod(0o755)
        yield Path(path)
