"""Who can change a file: its mode, its target, and every directory above both. Also the lease."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from slurm_plugin.records.site_settings import ARCHIVE, FILE, VERSION, beat_period, exposed, plugin_command, slurm_bin


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Root's own, two directories down."""
    path = tmp_path / "a/b/file"
    path.parent.mkdir(parents=True)
    path.touch(mode=0o644)
    return path


def test_roots_own(file: Path) -> None:
    """A file of root's in /tmp passes: the sticky bit keeps others from removing it."""
    assert exposed(str(file), str(file.parent), "/usr/bin/python3") == ""


@pytest.mark.parametrize(("place", "mode"), [("a", 0o775), ("a/b", 0o757), ("a/b/file", 0o664), ("a/b/file", 0o1646)])
def test_others_may_write(file: Path, tmp_path: Path, place: str, mode: int) -> None:
    """The file, or a directory above it; a sticky bit means nothing on a file."""
    (tmp_path / place).chmod(mode)
    assert exposed("/usr", str(file)) == str(tmp_path / place)


def test_a_sticky_directory(file: Path) -> None:
    """Users cannot remove root's file there."""
    file.parent.chmod(0o1777)
    assert exposed(str(file)) == ""


@pytest.mark.parametrize("place", ["a", "a/b", "a/b/file"])
def test_somebody_elses(file: Path, tmp_path: Path, place: str) -> None:
    """Its owner may change it."""
    os.chown(tmp_path / place, 20001, 20001)
    assert exposed(str(file)) == str(tmp_path / place)


def test_behind_a_link(file: Path, tmp_path: Path) -> None:
    """A link's target counts, and the directories above the link itself."""
    link = tmp_path / "c/link"
    link.parent.mkdir()
    link.symlink_to(file)
    assert exposed(str(link)) == ""
    file.parent.chmod(0o777)
    assert exposed(str(link)) == str(file.parent)
    file.parent.chmod(0o755)
    link.parent.chmod(0o777)
    assert exposed(str(link)) == str(link.parent)


def test_not_there(tmp_path: Path) -> None:
    """It raises OSError."""
    with pytest.raises(FileNotFoundError):
        exposed(str(tmp_path / "none"))


def test_beat_period() -> None:
    """At most 64 guards answer one beat, and each guard answers at least every eighth."""
    found = {nodes: beat_period(nodes) for nodes in (1, 64, 65, 128, 129, 10_000)}
    assert found == {1: 1, 64: 1, 65: 2, 128: 2, 129: 3, 10_000: 8}


def test_the_directory_of_slurms_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The deployed site's; none if the site is not deployed, or if its file cannot be read."""
    monkeypatch.setattr(sys, "path", [str(tmp_path / ARCHIVE)])
    assert slurm_bin() == ""
    (tmp_path / ARCHIVE).touch()
    assert slurm_bin() == ""
    (tmp_path / FILE).write_text(json.dumps({"v": VERSION, "slurm_bin": "/opt/slurm/bin"}))
    assert slurm_bin() == "/opt/slurm/bin"
    (tmp_path / FILE).write_text("no JSON")
    assert slurm_bin() == ""


def test_a_users_file_with_the_name_of_a_module(tmp_path: Path) -> None:
    """A step of a job, which starts in the job's directory, does not import it."""
    for name in ("json", "types", "typing", "argparse", "hostfiles"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(9)\n")
    done = subprocess.run([*plugin_command(), "job", "guard", "--help"], capture_output=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
