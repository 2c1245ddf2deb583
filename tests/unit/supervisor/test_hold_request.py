"""Requests to a hold, in a file of the job's user."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.supervisor import hold
from tests.unit.supervisor.held import Held


def test_what_is_no_request(tmp_path: Path) -> None:
    """Half a request, or other content: it is read again."""
    for word in ["", "rele", "release now", "\xff", "RELEASE"]:
        (tmp_path / hold.REQUEST).write_bytes(word.encode("latin1"))
        assert hold.requested(tmp_path) == "", word


def test_a_request_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of another user, a link and a pipe are ignored."""
    (tmp_path / hold.REQUEST).write_text("release\n")
    assert hold.requested(tmp_path) == "release"
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / hold.REQUEST).symlink_to(tmp_path / hold.REQUEST)
    assert hold.requested(tmp_path / "link") == ""
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe" / hold.REQUEST)
    assert hold.requested(tmp_path / "pipe") == ""
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert hold.requested(tmp_path) == ""


def test_a_request_is_written_into_no_other_file(tmp_path: Path) -> None:
    """Root may write a request, too: it follows no link of the user."""
    (tmp_path / "precious").write_text("x" * 100)
    for link in (os.symlink, os.link):
        link(tmp_path / "precious", tmp_path / hold.REQUEST)
        with pytest.raises(OSError, match=r"symbolic links|not as we made it"):
            hold.request(tmp_path, "release")
        (tmp_path / hold.REQUEST).unlink()
    assert (tmp_path / "precious").read_text() == "x" * 100
    (tmp_path / hold.REQUEST).write_text("something longer than that\n")
    hold.request(tmp_path, "rerun")
    assert hold.requested(tmp_path) == "rerun"


def test_files_are_their_owners(held: Held) -> None:
    """Only the job's user may send a request."""
    modes = []
    held.pauses = [lambda: modes.append((held.directory / hold.REQUEST).stat().st_mode & 0o777), held.ask("release")]
    held.keep()
    assert modes == [0o600]


def test_a_full_disk_when_the_next_hold_begins(
    held: Held, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The answered request stays in its file, but the command does not run again and again."""
    replace, full = hold.files.replace, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def on_a_full_disk(*words: Any, **more: Any) -> None:
        if held.recorded[1:]:  # the program has run again, and has filled the disk
            raise full
        replace(*words, **more)

    monkeypatch.setattr(hold.files, "replace", on_a_full_disk)
    held.pauses, held.codes = [held.ask("rerun"), held.end], [6]
    assert held.keep().code == 6
    assert "No space left on device: neither rerun nor release will work" in capsys.readouterr().out
