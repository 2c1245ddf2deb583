"""The removal of one user's files while that user changes them: no other file is lost."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.unit.node.owned import ALICE, BOB, directory, file, give, left, remove


@contextmanager
def root() -> Iterator[None]:
    """Run this block as root, while something is removed with a user's rights."""
    user = os.geteuid()
    os.seteuid(0)
    try:
        yield
    finally:
        os.seteuid(user)


def test_a_user_who_is_at_work(shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between stat and open a name becomes a link or another user's file: nothing behind it is removed."""
    precious = directory(tmp_path / "precious", BOB)
    file(precious / "f", BOB)
    real = os.open
    swaps: dict[str, Callable[[], object]] = {
        "link": lambda: (shared / "link").symlink_to(precious),
        "bobs": lambda: precious.rename(shared / "bobs"),
    }
    for name in swaps:
        directory(shared / name)

    def swapped(path: str, flags: int, *args: int, dir_fd: int | None = None) -> int:
        if path in swaps:
            with root():
                (shared / path).rmdir()
                swaps.pop(path)()
        return real(path, flags, *args, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", swapped)
    assert remove(shared) == 0
    assert not swaps
    assert (shared / "bobs/f").read_text() == "x"


def swap_for_ever(shared: Path) -> None:
    """As the user, make names directories, links and files, and move directories about, until killed."""
    os.chdir(shared)
    os.setuid(ALICE)
    while True:
        for number in range(20):
            with suppress(OSError):
                Path(f"{number}/d/d").mkdir(parents=True)
            with suppress(OSError):
                Path(f"{number}/d").rename(f"{number}.moved")
            with suppress(OSError):
                Path(f"{number}/d").symlink_to("../../precious")
            with suppress(OSError):
                Path(f"{number}.moved/d").rmdir()
                Path(f"{number}.moved/d").symlink_to("../../precious")


def test_a_race(shared: Path, tmp_path: Path) -> None:
    """While a process of the user interferes, only that user's files are removed, and every call returns."""
    precious = directory(tmp_path / "precious")
    file(precious / "f")
    tmp_path.chmod(0o711)
    pid = os.fork()
    if pid == 0:
        swap_for_ever(shared)
    try:
        removed = 0
        while removed < 500:  # it makes more for as long as it lives
            removed += remove(shared)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert "f" in left(precious)  # and what the user itself made there, through a link of its own
    remove(shared)
    assert left(shared) == set()


def test_a_name_that_somebody_else_takes_meanwhile(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between stat and unlink a file becomes another user's: the kernel refuses."""
    file(shared / "f")
    directory(shared / "d")
    reals = {"unlink": os.unlink, "rmdir": os.rmdir}

    def swapping(how: str) -> Callable[..., None]:
        def swapped(name: str, *, dir_fd: int) -> None:
            with root():
                give(shared / name, BOB)
            reals[how](name, dir_fd=dir_fd)

        return swapped

    for how in reals:
        monkeypatch.setattr(os, how, swapping(how))
    assert remove(shared) == 0
    assert left(shared) == {"f", "d"}


def test_a_directory_that_moves_meanwhile(shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who moves the directory that is being emptied loses nothing above its new place."""
    home = directory(tmp_path / "home")
    file(home / "thesis")
    file(directory(directory(shared / "a") / "b") / "f")
    real = os.unlink

    def moving(name: str, *, dir_fd: int) -> None:
        if name == "f":
            with root():
                (shared / "a" / "b").rename(home / "b")
        real(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", moving)
    remove(shared)
    assert left(home) == {"thesis", "b"}
