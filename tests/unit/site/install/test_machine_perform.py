"""Plans are performed with owners and modes, unless a file has changed or others can write there."""

import os
from pathlib import Path

import pytest

from slurm_plugin.errors import SlurmPluginError, UsageError
from slurm_plugin.site.files import Entry
from slurm_plugin.site.install.machine import Change, Plan, entry, perform


def test_make_change_remove(tmp_path: Path) -> None:
    """Directories and files get their mode and owner, whatever the umask."""
    root, name = str(tmp_path / "root"), str(tmp_path / "root/file")
    folder, first, second = Entry(None, 0o755), Entry(b"1", 0o755, 20001, 20001), Entry(b"2", 0o640)
    old = os.umask(0o077)
    try:
        perform(Plan((Change(root, None, folder), Change(name, None, first))), root)
    finally:
        os.umask(old)
    assert (entry(root), entry(name)) == (folder, first)
    perform(Plan((Change(name, first, second),)), root)
    assert (entry(name), [path.name for path in Path(root).iterdir()]) == (second, ["file"])
    perform(Plan((Change(name, second, None), Change(root, folder, None))), root)
    assert entry(root) is None


def test_a_directory_that_others_have_filled(tmp_path: Path) -> None:
    """A directory that is not empty stays, and the rest is done."""
    (tmp_path / "a").mkdir()
    folder = entry(str(tmp_path / "a"))
    (tmp_path / "a/theirs").touch()
    perform(Plan((Change(str(tmp_path / "a"), folder, None),)), str(tmp_path / "root"))
    assert (tmp_path / "a/theirs").exists()


def test_changed_since_the_plan(tmp_path: Path) -> None:
    """No change is made."""
    (tmp_path / "b").write_text("somebody's")
    new = Entry(b"x", 0o644)
    plan = Plan((Change(str(tmp_path / "a"), None, new), Change(str(tmp_path / "b"), None, new)))
    with pytest.raises(SlurmPluginError, match="/b differs from the plan; nothing was changed"):
        perform(plan, str(tmp_path / "root"))
    assert not (tmp_path / "a").exists()


def test_what_cannot_be_written(tmp_path: Path) -> None:
    """The error names the path and the cause; no partial file stays."""
    new = Entry(b"x", 0o644)
    plan = Plan((Change(str(tmp_path / "a"), None, new), Change(str(tmp_path / "none/b"), None, new)))
    with pytest.raises(SlurmPluginError, match="/none/b: No such file or directory\n  the changes before it are made"):
        perform(plan, str(tmp_path / "root"))
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_below_a_directory_of_others(tmp_path: Path) -> None:
    """A directory that others can change is refused."""
    tmp_path.chmod(0o777)
    with pytest.raises(UsageError, match=f"others than root can change {tmp_path}, above {tmp_path}/x/root"):
        perform(Plan(), str(tmp_path / "x/root"))


def test_only_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other users get an error before any change."""
    monkeypatch.setattr(os, "geteuid", lambda: 20001)
    with pytest.raises(UsageError, match="run it as root"):
        perform(Plan(), str(tmp_path))


def test_links_are_not_followed(tmp_path: Path) -> None:
    """A link in place of a file is refused."""
    (tmp_path / "link").symlink_to("/etc/hostname")
    with pytest.raises(UsageError, match="link is neither a file nor a directory"):
        entry(str(tmp_path / "link"))
