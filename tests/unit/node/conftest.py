"""What tests of the node's side share."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.records import syslog
from tests.unit.node.bad_node import default_site
from tests.unit.node.looked_at import Machine
from tests.unit.node.owned import like_tmp


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


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """An idle node that was not checked since its boot."""
    return Machine(tmp_path, monkeypatch)


@pytest.fixture
def site(tmp_path: Path) -> dict[str, Any]:
    """The default settings; the state of this node in a directory of root's."""
    return default_site(tmp_path)


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A directory like /tmp."""
    return like_tmp(tmp_path / "shared")
