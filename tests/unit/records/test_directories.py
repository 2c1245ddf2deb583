"""Mirrors slurm_plugin/records/job_directory.py."""

import json
from pathlib import Path

import pytest

from slurm_plugin.records import job_directory


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of the register of a user who has none yet."""
    monkeypatch.setenv(job_directory.STATE_HOME, str(tmp_path))
    return tmp_path / "slurm_plugin" / job_directory.REMEMBERED


def test_known(file: Path) -> None:
    """The newest is the last, and each is there once."""
    assert job_directory.remembered() == []
    for name in ("/a", "/b\n/c", "/a", "/a"):
        job_directory.remember(name)
    assert job_directory.remembered() == ["/b\n/c", "/a"]
    assert file.read_text() == '"/a"\n"/b\\n/c"\n"/a"\n'


def test_it_is_bounded(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old directories make room for new ones, and a long file is written anew."""
    monkeypatch.setattr(job_directory, "MOST_REMEMBERED", 3)
    for number in range(9):
        job_directory.remember(f"/{number}")
    assert job_directory.remembered() == ["/6", "/7", "/8"]
    monkeypatch.setattr(job_directory, "MOST_BYTES", 100)
    file.write_text('"/a"\n' * 100)
    job_directory.remember("/b")
    assert file.read_text() == '"/a"\n"/b"\n'


@pytest.mark.parametrize("text", ["", 'x\n[1]\n1\nnull\n"relative"\n', "{" * 9999, "\0\xff"])
def test_malformed(text: str, file: Path) -> None:
    """Other lines are left out."""
    file.parent.mkdir()
    file.write_text(f"{text}\n{json.dumps('/a')}\n")
    assert job_directory.remembered() == ["/a"]


def test_no_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A home that cannot be written, and a link in place of the register, change nothing."""
    (tmp_path / "file").touch()
    monkeypatch.setenv(job_directory.STATE_HOME, str(tmp_path / "file"))
    job_directory.remember("/a")
    assert job_directory.remembered() == []
    monkeypatch.setenv(job_directory.STATE_HOME, str(tmp_path))
    (tmp_path / "slurm_plugin").mkdir()
    (tmp_path / "slurm_plugin" / job_directory.REMEMBERED).symlink_to(tmp_path / "file")
    job_directory.remember("/a")
    assert (tmp_path / "file").read_text() == ""
