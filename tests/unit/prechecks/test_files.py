"""A file is written as a whole: readers see the old one or the new one, whatever happens to the writer."""

import errno
import os
from pathlib import Path

import pytest

from prechecks import files


def content(directory: Path) -> dict[str, str]:
    """Return every file in a directory, hidden ones too."""
    return {path.name: path.read_text() for path in directory.iterdir()}


@pytest.mark.parametrize("durable", [False, True])
def test_replace(tmp_path: Path, durable: bool) -> None:
    """No other file is left, not even by a killed writer with the same pid."""
    (tmp_path / f".hostfile.{os.getpid()}").write_text("half")
    for text in ("n1 slots=4\n" * 100, "n2 slots=4\n"):
        files.replace(tmp_path / "hostfile", text, durable=durable)
    assert content(tmp_path) == {"hostfile": "n2 slots=4\n"}


def test_a_link_is_replaced(tmp_path: Path) -> None:
    """Its target is never written."""
    (tmp_path / "victim").write_text("whole")
    (tmp_path / "a").symlink_to(tmp_path / "victim")
    files.replace(tmp_path / "a", b"new")
    assert content(tmp_path) == {"victim": "whole", "a": "new"}
    assert not (tmp_path / "a").is_symlink()


@pytest.mark.parametrize(("mode", "found"), [(0o644, 0o644), (0o755, 0o755), (None, 0o640)])
def test_mode(tmp_path: Path, mode: int | None, found: int) -> None:
    """The given mode, whatever the umask. Without a mode the umask decides."""
    before = os.umask(0o027)
    try:
        files.replace(tmp_path / "a", "", mode=mode)
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == found


@pytest.mark.parametrize("broken", ["fsync", "rename"])
def test_a_write_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    """Wherever it fails, the old file is unchanged, and no other file is left."""

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "hostfile").write_text("old")
    monkeypatch.setattr(os, broken, full)
    with pytest.raises(OSError, match="No space"):
        files.replace(tmp_path / "hostfile", "new", durable=True)
    assert content(tmp_path) == {"hostfile": "old"}


def test_a_file_system_that_syncs_no_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is written nevertheless."""
    real = os.fsync

    def fsync(fd: int) -> None:
        if Path(f"/proc/self/fd/{fd}").is_dir():
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    files.replace(tmp_path / "a", "new", durable=True)
    assert content(tmp_path) == {"a": "new"}


def test_a_locked_directory(tmp_path: Path) -> None:
    """One block holds the lock at a time; afterwards, and after a failure, no descriptor is left open."""
    before = len([*Path("/proc/self/fd").iterdir()])
    with files.Locked(files.open_directory(str(tmp_path)), "lock", 0) as directory:
        files.replace("a", "new", directory=directory)
        with pytest.raises(BlockingIOError):
            files.Locked(files.open_directory(str(tmp_path)), "lock", 0)
    with files.Locked(files.open_directory(str(tmp_path)), "lock", 0), pytest.raises(ValueError, match="inside"):
        raise ValueError("inside")
    assert content(tmp_path) == {"a": "new", "lock": ""}
    assert len([*Path("/proc/self/fd").iterdir()]) == before
