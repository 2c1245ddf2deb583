"""Root's prolog makes a user's directory for copies of data, whatever another user does there."""

import os
import subprocess
import threading
from pathlib import Path

import pytest

from slurm_plugin.node import staging_directory
from tests.unit.node.copies import ANN, BEN, directory, file, give
from tests.waiting import until


def is_his(shared: Path) -> bool:
    """Return whether BEN has a directory there that only he can enter."""
    found = (shared / str(BEN)).lstat()
    return (found.st_uid, found.st_gid, found.st_mode) == (BEN, BEN, 0o040700)


def test_it_is_made(shared: Path) -> None:
    """It is made once, and its files stay."""
    staging_directory.make(str(shared), BEN, BEN)
    assert is_his(shared)
    file(shared / str(BEN) / "mine", BEN)
    staging_directory.make(str(shared), BEN, BEN)
    assert [path.name for path in shared.iterdir()] == [str(BEN)]
    assert (shared / str(BEN) / "mine").exists()


@pytest.mark.parametrize("what", ["empty", "full", "file", "link"])
def test_what_another_user_has_made_there(shared: Path, tmp_path: Path, log: list[str], what: str) -> None:
    """It makes way: empty ones are removed, others renamed."""
    squatted, precious = shared / str(BEN), directory(tmp_path / "precious", BEN)
    if what == "file":
        file(squatted)
    elif what == "link":
        squatted.symlink_to(precious)
        give(squatted)
    else:
        directory(squatted)
    if what == "full":
        file(squatted / "mine")
    assert staging_directory._make(str(shared), BEN, BEN) == ""
    assert is_his(shared)
    kept = what in ("full", "file")
    assert len(list(shared.iterdir())) == 1 + kept
    assert [line.partition("; ")[0] for line in log] == [
        f"another user had made the directory of uid {BEN} for copies"
    ] * kept
    assert precious.exists()


def test_what_is_the_users_own_or_roots_stays(shared: Path) -> None:
    """Also one that was made while root made the new one."""
    directory(shared / str(ANN), 0)
    assert staging_directory._make(str(shared), ANN, ANN) == ""
    assert (shared / str(ANN)).stat().st_uid == 0
    file(directory(shared / str(BEN), BEN) / "mine", BEN)
    fd = os.open(shared, os.O_RDONLY)
    os.mkdir(".new", dir_fd=fd)
    assert staging_directory._move_in(fd, ".new", str(BEN), BEN)
    os.close(fd)
    assert (shared / str(BEN) / "mine").exists()


def test_another_user_who_makes_it_again_and_again(shared: Path) -> None:
    """A loop that makes a directory with a file in it again and again blocks no job."""
    name = str(BEN)
    loop = (
        f"while [ ! -e end ]; do mkdir {name} && : >{name}/x && : >up; rm -rf {name}; mkdir {name} && : >{name}/x; done"
    )
    with subprocess.Popen(["/bin/sh", "-c", f"{{ {loop}; }} 2>/dev/null"], cwd=shared, user=ANN, group=ANN):
        try:
            until((shared / "up").exists)
            assert staging_directory._make(str(shared), BEN, BEN) == ""
            assert is_his(shared)
        finally:
            (shared / "end").touch()  # killed, it would leave a process of this user's behind


def test_a_disk_that_does_not_answer(shared: Path, log: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The prolog goes on."""
    monkeypatch.setattr(staging_directory, "WITHIN_S", 0.1)
    monkeypatch.setattr(staging_directory, "_make", lambda *_: threading.Event().wait())
    staging_directory.make(str(shared), BEN, BEN)
    assert log == [f"no place for copies of uid {BEN} in {shared}: not done after 0.1 s"]
