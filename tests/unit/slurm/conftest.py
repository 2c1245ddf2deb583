"""Fixtures of the tests of slurm_plugin.slurm."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.captured.capture import fixed_nonce
from tests.unit.slurm.fake_commands import Bin
from tests.unit.slurm.pyslurm_plan import FakePyslurm
from tests.unit.slurm.replay import FILES, Release
from tests.waiting import HANG_S


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bin:
    """Return an empty directory for commands. Killed commands are waited for until they have ended."""
    monkeypatch.setattr("slurm_plugin.slurm.process.LEFT_BEHIND_S", HANG_S)
    return Bin(tmp_path)


@pytest.fixture
def pyslurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakePyslurm:
    """Return a fake pyslurm that this process and its children can import. No command of Slurm is on the PATH."""
    fake = FakePyslurm(tmp_path / "site")
    fake.install()
    monkeypatch.setattr("slurm_plugin.slurm.library.READY_S", HANG_S)
    monkeypatch.setattr("slurm_plugin.slurm.library.END_S", HANG_S)
    monkeypatch.setenv("PYTHONPATH", str(fake.directory))
    monkeypatch.syspath_prepend(str(fake.directory))
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("SLURM_PLUGIN_BACKEND", raising=False)
    return fake


@pytest.fixture(params=FILES)
def slurm(request: pytest.FixtureRequest) -> Iterator[Release]:
    """Return each release in turn."""
    with fixed_nonce():
        yield Release(request.param)
