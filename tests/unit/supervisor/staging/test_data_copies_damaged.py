"""Damaged copies: each is made again, and none is used as complete."""

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from slurm_plugin.supervisor.staging import data_copies
from tests.unit.supervisor.staging.test_data_copies import NODE, made, place, request

__all__ = ["place"]  # a fixture


def removed(data: Path) -> None:
    (data / "a").unlink()


def cut(data: Path) -> None:
    os.truncate(data / "a", 1)


def overwritten_in_secret(data: Path) -> None:
    before = (data / "a").stat()
    (data / "a").write_text("two")
    os.utime(data / "a", ns=(before.st_atime_ns, before.st_mtime_ns))


def added(data: Path) -> None:
    (data / "b").touch()


def led_elsewhere(data: Path) -> None:
    removed(data)
    (data / "a").symlink_to("/etc/hostname")


def without_a_seal(data: Path) -> None:
    (data.parent / ".seal").unlink()


DAMAGES = (removed, cut, overwritten_in_secret, added, led_elsewhere, without_a_seal)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_copy_is_made_anew(
    place: Path, capsys: pytest.CaptureFixture[str], damage: Callable[[Path], None]
) -> None:
    """And is whole again for the runs that had it before, with nothing left of what was damaged."""
    assert data_copies.fetch(request(place), NODE) == 0
    (one,) = made(place)
    (one / "data").chmod(0o700)
    damage(one / "data")
    assert data_copies.fetch(request(place, run="8.0"), NODE) == 0
    for run in ("7.0", "8.0"):
        data = one.parent / run / "set"
        assert {path.name: path.read_text() for path in data.iterdir()} == {"a": "one"}
    assert {path.name for path in one.iterdir()} == {"data", ".used", ".seal"}
    assert "set: 1 files, 3 B, copied anew, as the copy here was damaged (" in capsys.readouterr().out
    assert data_copies.fetch(request(place, run="9.0"), NODE) == 0
    assert "there already" in capsys.readouterr().out


def test_without_room_for_two_the_damaged_one_goes_first(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Directories that nobody may enter, and links, too; what a link leads to stays as it is."""
    assert data_copies.fetch(request(place), NODE) == 0
    (one,) = made(place)
    (one / "data").chmod(0o700)
    (one / "data/shut").mkdir(mode=0)
    precious = place / "precious"
    precious.mkdir(mode=0o750)
    (one / "data/link").symlink_to(precious)

    def free(_fd: int) -> object:
        blocks = 1 if (one / "data").exists() else 1000
        return SimpleNamespace(f_frsize=4096, f_bavail=blocks, f_files=0, f_favail=0)

    monkeypatch.setattr(os, "fstatvfs", free)
    assert data_copies.fetch(request(place), NODE) == 0
    assert {path.name for path in (one / "data").iterdir()} == {"a"}
    assert precious.stat().st_mode & 0o777 == 0o750
