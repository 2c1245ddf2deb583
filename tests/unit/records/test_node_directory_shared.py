"""Directories that may be cleaned: like /tmp, and on a local file system."""

from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_plugin.records import node_directory
from tests.unit.node.owned import give, like_tmp


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A directory like /tmp."""
    return like_tmp(tmp_path / "shared")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda path: path.chmod(0o777), "is not root's and open to all with the sticky bit, as /tmp is"),
        (give, "is not root's and open to all with the sticky bit, as /tmp is"),
        (lambda path: (path.rename(f"{path}.2"), path.symlink_to(f"{path}.2")), "Not a directory"),
        (lambda path: path.rmdir(), "No such file or directory"),
    ],
    ids=["a home", "a user's own", "a link", "nothing"],
)
def test_directories_that_are_refused(shared: Path, change: Callable[[Path], object], words: str) -> None:
    """Only what looks like /tmp is cleaned."""
    change(shared)
    with pytest.raises(OSError, match=r".") as caught:
        node_directory.open_shared(str(shared))
    assert caught.value.strerror == words


def test_a_link_on_the_way(shared: Path, tmp_path: Path) -> None:
    """No part of the path may be a link."""
    (tmp_path / "way").symlink_to(tmp_path)
    with pytest.raises(NotADirectoryError):
        node_directory.open_shared(f"{tmp_path}/way/shared")


def test_file_systems_that_nodes_share(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job on another node may use the files there."""
    table = Path("/proc/self/mountinfo").read_text()
    at = node_directory.mounts.Mount("0:99", str(shared), frozenset({"rw"}), "nfs4", frozenset({"rw"}))
    rows = [*map(node_directory.mounts.parse, table.splitlines()), at]
    monkeypatch.setattr(node_directory.mounts, "mounts", lambda: iter(rows))
    with pytest.raises(PermissionError) as caught:
        node_directory.open_shared(str(shared))
    assert caught.value.strerror == "is on nfs4, which other nodes may share"


MOUNTS = {"/": "ext4", "/dev": "devtmpfs", "/dev/shm": "tmpfs", "/scratch": "xfs", "/scratch/net": "lustre"}


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/dev/shm", "tmpfs"),
        ("//dev//shm/", "tmpfs"),
        ("/dev/shmx", "devtmpfs"),
        ("/scratch/a", "xfs"),
        ("/scratch/net/a", "lustre"),
        ("/tmp", "ext4"),
    ],
)
def test_file_system(path: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the nearest mount point above."""
    rows = [node_directory.mounts.Mount("0:1", point, frozenset(), each, frozenset()) for point, each in MOUNTS.items()]
    monkeypatch.setattr(node_directory.mounts, "mounts", lambda: iter(rows))
    assert node_directory.file_system(path) == kind
