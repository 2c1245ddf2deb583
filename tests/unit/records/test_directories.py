"""Mirrors slurm_plugin/records/directories.py."""

import json
from pathlib import Path

import pytest

from slurm_plugin.records import directories


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of the register of a user who has none yet."""
    monkeypatch.setenv(directories.STATE_HOME, str(tmp_path))
    return tmp_path / "slurm_plugin" / directories.FILE


def test_known(file: Path) -> None:
    """The newest is the last, and each is there once."""
    assert directories.read() == []
    for name in ("/a", "/b\n/c", "/a", "/a"):
        directories.add(name)
    assert directories.read() == ["/b\n/c", "/a"]
    assert file.read_text() == '"/a"\n"/b\\n/c"\n"/a"\n'


def test_it_is_bounded(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old directories make room for new ones, and a long file is written anew."""
    monkeypatch.setattr(directories, "MOST", 3)
    for number in range(9):
        directories.add(f"/{number}")
    assert directories.read() == ["/6", "/7", "/8"]
    monkeypatch.setattr(directories.job_directory, "MOST_BYTES", 100)
    file.write_text('"/a"\n' * 100)
    directories.add("/b")
    assert file.read_text() == '"/a"\n"/b"\n'


@pytest.mark.parametrize("text", ["", 'x\n[1]\n1\nnull\n"relative"\n', "{" * 9999, "\0\xff"])
def test_malformed(text: str, file: Path) -> None:
    """Other lines are left out."""
    file.parent.mkdir()
    file.write_text(f"{text}\n{json.dumps('/a')}\n")
    assert directories.read() == ["/a"]


def test_no_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A home that cannot be written, and a link in place of the register, change nothing."""
    (tmp_path / "file").touch()
    monkeypatch.setenv(directories.STATE_HOME, str(tmp_path / "file"))
    directories.add("/a")
    assert directories.read() == []
    monkeypatch.setenv(directories.STATE_HOME, str(tmp_path))
    (tmp_path / "slurm_plugin").mkdir()
    (tmp_path / "slurm_plugin" / directories.FILE).symlink_to(tmp_path / "file")
    directories.add("/a")
    assert (tmp_path / "file").read_text() == ""
