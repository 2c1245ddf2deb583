"""A file is written as a whole: readers see the old one or the new one, whatever happens to the writer.

Also who can change a file: its mode, its target, and every directory above both.
"""

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


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Root's own, two directories down."""
    path = tmp_path / "a/b/file"
    path.parent.mkdir(parents=True)
    path.touch(mode=0o644)
    return path


def test_roots_own(file: Path) -> None:
    """A file of root's in /tmp passes: the sticky bit keeps others from removing it."""
    assert files.exposed(str(file), str(file.parent), "/usr/bin/python3") == ""


@pytest.mark.parametrize(("place", "mode"), [("a", 0o775), ("a/b", 0o757), ("a/b/file", 0o664), ("a/b/file", 0o1646)])
def test_others_may_write(file: Path, tmp_path: Path, place: str, mode: int) -> None:
    """The file, or a directory above it; a sticky bit means nothing on a file."""
    (tmp_path / place).chmod(mode)
    assert files.exposed("/usr", str(file)) == str(tmp_path / place)


def test_a_sticky_directory(file: Path) -> None:
    """Users cannot remove root's file there."""
    file.parent.chmod(0o1777)
    assert files.exposed(str(file)) == ""


@pytest.mark.parametrize("place", ["a", "a/b", "a/b/file"])
def test_somebody_elses(file: Path, tmp_path: Path, place: str) -> None:
    """Its owner may change it."""
    os.chown(tmp_path / place, 20001, 20001)
    assert files.exposed(str(file)) == str(tmp_path / place)


def test_behind_a_link(file: Path, tmp_path: Path) -> None:
    """A link's target counts, and the directories above the link itself."""
    link = tmp_path / "c/link"
    link.parent.mkdir()
    link.symlink_to(file)
    assert files.exposed(str(link)) == ""
    file.parent.chmod(0o777)
    assert files.exposed(str(link)) == str(file.parent)
    file.parent.chmod(0o755)
    link.parent.chmod(0o777)
    assert files.exposed(str(link)) == str(link.parent)


def test_not_there(tmp_path: Path) -> None:
    """It raises OSError."""
    with pytest.raises(FileNotFoundError):
        files.exposed(str(tmp_path / "none"))
