"""What the tests of the door share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.captured.capture import fixed_nonce
from tests.unit.slurm.fake_commands import Bin
from tests.unit.slurm.pyslurm_plan import FakePyslurm
from tests.unit.slurm.replay import FILES, Release


@pytest.fixture
def commands(tmp_path: Path) -> Bin:
    """An empty directory of commands."""
    return Bin(tmp_path)


@pytest.fixture
def pyslurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakePyslurm:
    """A pyslurm that can be imported, here and in a child, and no command on the PATH."""
    fake = FakePyslurm(tmp_path / "site")
    fake.install()
    monkeypatch.setenv("PYTHONPATH", str(fake.directory))
    monkeypatch.syspath_prepend(str(fake.directory))
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("SLURM_PLUGIN_BACKEND", raising=False)
    return fake


@pytest.fixture(params=FILES)
def slurm(request: pytest.FixtureRequest) -> Iterator[Release]:
    """Each release in turn."""
    with fixed_nonce():
        yield Release(request.param)
