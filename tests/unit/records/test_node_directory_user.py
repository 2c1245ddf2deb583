"""Where the user's files of a run are. Files of other users are not used."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_plugin.records import node_directory

OTHER = 20001


@pytest.fixture
def spare() -> Iterator[tuple[str, Path]]:
    """Return a run without a directory of the prolog, and the path in /tmp for its user."""
    directory = f"{os.getpid()}.0.97"
    path = Path(f"{node_directory.SPARE}{directory}")
    yield directory, path
    if path.is_symlink():
        path.unlink()
    shutil.rmtree(path, ignore_errors=True)


def test_folder_that_the_prolog_made(tmp_path: Path) -> None:
    """The user's part of the run's directory."""
    node_directory.create(str(tmp_path), "7.0.0", uid=os.getuid(), gid=os.getgid())
    assert node_directory.user_folder(str(tmp_path), "7.0.0") == f"{tmp_path}/jobs/7.0.0/user"


def test_folder_of_one_of_several_groups(tmp_path: Path) -> None:
    """A heterogeneous job has a directory for each group, and a node has that of its own group."""
    node_directory.create(str(tmp_path), "8.0.0", uid=os.getuid(), gid=os.getgid())
    assert (
        node_directory.user_folder(str(tmp_path), node_directory.joined_names(["7.0.0", "8.0.0"]))
        == f"{tmp_path}/jobs/8.0.0/user"
    )


def test_folder_without_a_prolog(tmp_path: Path, spare: tuple[str, Path]) -> None:
    """A directory in /tmp that only the user can enter. An earlier one of the user is used again."""
    directory, path = spare
    for _ in range(2):
        assert node_directory.user_folder(str(tmp_path), directory) == str(path)
        assert path.stat().st_mode & 0o777 == 0o700


def test_folder_that_others_may_enter(tmp_path: Path, spare: tuple[str, Path]) -> None:
    """It is refused by name, with every mode that lets others in."""
    directory, path = spare
    for mode in (0o755, 0o710, 0o701, 0o720):
        path.mkdir()
        path.chmod(mode)
        with pytest.raises(FileExistsError, match=f"File exists: '{path}'"):
            node_directory.user_folder(str(tmp_path), directory)
        path.rmdir()


def test_folder_of_another_user(tmp_path: Path, spare: tuple[str, Path]) -> None:
    """A directory of another user is refused, even with the right mode."""
    directory, path = spare
    path.mkdir(0o700)
    os.chown(path, OTHER, OTHER)
    with pytest.raises(FileExistsError):
        node_directory.user_folder(str(tmp_path), directory)


def test_folder_of_another_user_for_a_reader(tmp_path: Path, spare: tuple[str, Path]) -> None:
    """`slurm-plugin shell` runs what is there: it is refused, too, and a missing one is root's to make."""
    directory, path = spare
    assert node_directory.user_folder(str(tmp_path), directory, make=False) == f"{tmp_path}/jobs/{directory}/user"
    assert not path.exists()
    path.mkdir(0o700)
    os.chown(path, OTHER, OTHER)
    with pytest.raises(FileExistsError):
        node_directory.user_folder(str(tmp_path), directory, make=False)


def test_folder_that_is_a_link(tmp_path: Path, spare: tuple[str, Path]) -> None:
    """A link is refused, even to a directory of the user's own."""
    directory, path = spare
    (tmp_path / "mine").mkdir(0o700)
    path.symlink_to(tmp_path / "mine")
    with pytest.raises(FileExistsError):
        node_directory.user_folder(str(tmp_path), directory)


def test_write(tmp_path: Path) -> None:
    """The whole file, for the user alone, replacing an earlier one. A link is replaced, not followed."""
    victim = tmp_path / "victim"
    victim.write_text("kept")
    place = tmp_path / "place"
    place.mkdir()
    (place / "task.sh").symlink_to(victim)
    for text in ("first\n", "\udcff second\n"):
        node_directory.write_user_file(str(place), "task.sh", text)
        assert node_directory.read_user_file(str(place), "task.sh") == text
        assert (place / "task.sh").lstat().st_mode & 0o777 == 0o600
    assert (victim.read_text(), [path.name for path in place.iterdir()]) == ("kept", ["task.sh"])


def test_read(tmp_path: Path) -> None:
    """A missing file is empty; a link is an error."""
    assert node_directory.read_user_file(str(tmp_path), "task.sh") == ""
    (tmp_path / "task.sh").symlink_to("/etc/passwd")
    with pytest.raises(OSError, match=r"task\.sh"):
        node_directory.read_user_file(str(tmp_path), "task.sh")


def test_with_hooks() -> None:
    """The hooks' lines come first, so the mode's own count; those of an earlier attempt are replaced."""
    own = "printf 'export RANK=%s\\n' \"$SLURM_PROCID\"\n"
    once = node_directory.with_hook_lines(own, "printf '%s\\n' 'export RANK=99' 'export A=1'\n")
    twice = node_directory.with_hook_lines(once, "printf '%s\\n' 'export RANK=99' 'export A=2'\n")
    said = subprocess.run(
        ["/bin/sh", "-c", twice], env={"SLURM_PROCID": "3"}, capture_output=True, text=True, check=True
    )
    assert said.stdout == "export RANK=99\nexport A=2\nexport RANK=3\n"
    assert node_directory.with_hook_lines(twice, "") == own
    assert node_directory.with_hook_lines("", "") == ""
