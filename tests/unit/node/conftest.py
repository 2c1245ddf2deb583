"""What tests of the node's side share."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_plugin.records import syslog


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that every user reaches."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="old-jobs-") as path:
        Path(path).chmod(0o755)
        yield Path(path)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lines of this process in the system log."""
    lines: list[str] = []
    monkeypatch.setattr(syslog, "syslog", lambda *words: lines.append(words[-1]))
    return lines
