"""Mirrors slurm_plugin/job/taskfile.py: where the user's files of a run stand, and that nobody else's are taken."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_plugin.hooks import node_directory
from slurm_plugin.job import taskfile

OTHER = 20001


@pytest.fixture
def spare() -> Iterator[tuple[str, Path]]:
    """A run that no prolog of ours made a place for, and where its user's would be in /tmp."""
    directory = f"{os.getpid()}.0.97"
    path = Path(f"{taskfile.SPARE}{directory}")
    yield directory, path
    if path.is_symlink():
        path.unlink()
    shutil.rmtree(path, ignore_errors=True)


def test_folder_that_the_prolog_made(tmp_path: Path) -> None:
    """The user's part of the run's directory."""
    node_directory.create(str(tmp_path), "7.0.0", uid=os.getuid(), gid=os.getgid())
    assert taskfile.folder(str(tmp_path), "7.0.0") == f"{tmp_path}/jobs/7.0.0/user"


def test_folder_of_one_of_several_groups(tmp_path: Path) -> None:
    """A heterogeneous job has a directory for each group, and a node that of its own."""
    node_directory.create(str(tmp_path), "8.0.0", uid=os.getuid(), gid=os.getgid())
    assert taskfile.folder(str(tmp_path), taskfile.joined(["7.0.0", "8.0.0"])) == f"{tmp_path}/jobs/8.0.0/user"


def test_folder_without_a_prolog(tmp_path: Path, spare: tuple[str, Path]) -> None:
    """One in /tmp that nobody else may enter; the user's own from before is taken again."""
    directory, path = spare
    for _ in range(2):
        assert taskfile.folder(str(tmp_path), directory) == str(path)
        assert path.stat().st_mode & 0o777 == 0o700


def test_folder_that_others_may_enter(tmp_path: Path, spare: tuple[str, Path]) -> None:
    """It is refused by name, with whatever mode lets anybody else in."""
    directory, path = spare
    for mode in (0o755, 0o710, 0o701, 0o720):
        path.mkdir()
        path.chmod(mode)
        with pytest.raises(FileExistsError, match=f"File exists: '{path}'"):
            taskfile.folder(str(tmp_path), directory)
        path.rmdir()


def test_folder_of_another_user(tmp_path: Path, spare: tuple[str, Path]) -> None:
    """A directory of another user's, closed as ours would be, is refused."""
    directory, path = spare
    path.mkdir(0o700)
    os.chown(path, OTHER, OTHER)
    with pytest.raises(FileExistsError):
        taskfile.folder(str(tmp_path), directory)


def test_folder_that_is_a_link(tmp_path: Path, spare: tuple[str, Path]) -> None:
    """A link is refused, though it leads to a directory of the user's own."""
    directory, path = spare
    (tmp_path / "mine").mkdir(0o700)
    path.symlink_to(tmp_path / "mine")
    with pytest.raises(FileExistsError):
        taskfile.folder(str(tmp_path), directory)


def test_write(tmp_path: Path) -> None:
    """Whole, for the user alone, in place of the one before; a link is replaced, not followed; nothing else is left."""
    victim = tmp_path / "victim"
    victim.write_text("kept")
    place = tmp_path / "place"
    place.mkdir()
    (place / "task.sh").symlink_to(victim)
    for text in ("first\n", "\udcff second\n"):
        taskfile.write(str(place), "task.sh", text)
        assert taskfile.read(str(place), "task.sh") == text
        assert (place / "task.sh").lstat().st_mode & 0o777 == 0o600
    assert (victim.read_text(), [path.name for path in place.iterdir()]) == ("kept", ["task.sh"])


def test_read(tmp_path: Path) -> None:
    """A missing file is empty; a link is an error."""
    assert taskfile.read(str(tmp_path), "task.sh") == ""
    (tmp_path / "task.sh").symlink_to("/etc/passwd")
    with pytest.raises(OSError, match=r"task\.sh"):
        taskfile.read(str(tmp_path), "task.sh")


def test_with_hooks() -> None:
    """The hooks' lines come first, so the mode's own count; those of an earlier attempt are replaced."""
    own = "printf 'export RANK=%s\\n' \"$SLURM_PROCID\"\n"
    once = taskfile.with_hooks(own, "printf '%s\\n' 'export RANK=99' 'export A=1'\n")
    twice = taskfile.with_hooks(once, "printf '%s\\n' 'export RANK=99' 'export A=2'\n")
    said = subprocess.run(
        ["/bin/sh", "-c", twice], env={"SLURM_PROCID": "3"}, capture_output=True, text=True, check=True
    )
    assert said.stdout == "export RANK=99\nexport A=2\nexport RANK=3\n"
    assert taskfile.with_hooks(twice, "") == own
    assert taskfile.with_hooks("", "") == ""
