"""Deleting what one user left where all may write: hostile trees, real files of real owners."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from slurm_plugin.hooks import removal

ALICE, BOB = 20001, 20002
LATER = time.time_ns() + 3600 * 10**9


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A directory like /tmp."""
    return like_tmp(tmp_path / "shared")


def like_tmp(path: Path) -> Path:
    """A directory in which all may write."""
    path.mkdir()
    path.chmod(0o1777)
    return path


def give(path: Path, uid: int = ALICE) -> Path:
    """Make somebody the owner of a file, a link or a directory."""
    os.chown(path, uid, uid, follow_symlinks=False)
    return path


def file(path: Path, uid: int = ALICE) -> Path:
    """A file of somebody's."""
    path.write_text("x")
    return give(path, uid)


def directory(path: Path, uid: int = ALICE) -> Path:
    """A directory of somebody's."""
    path.mkdir()
    return give(path, uid)


def remove(path: Path, uid: int = ALICE, before: int = LATER) -> int:
    """What `removal.remove` removes of this user's."""
    fd = removal.open_shared(str(path))
    try:
        return removal.remove(fd, removal.Leftovers(uid, os.fstat(fd).st_dev, before))
    finally:
        os.close(fd)


@contextmanager
def root() -> Iterator[None]:
    """What is done in here is done by root, while something is removed with a user's rights."""
    user = os.geteuid()
    os.seteuid(0)
    try:
        yield
    finally:
        os.seteuid(user)


def left(path: Path) -> set[str]:
    """Everything in a directory."""
    return {str(each.relative_to(path)) for each in path.rglob("*")}


def test_one_users_files(shared: Path) -> None:
    """All of that user's, whatever they are and at any depth; nobody else's."""
    file(directory(directory(shared / "a") / "b") / "c")
    file(shared / "f")
    os.mkfifo(shared / "fifo")
    give(shared / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(shared / "socket"))
    give(shared / "socket")
    file(directory(shared / "bobs", BOB) / "f", BOB)
    file(shared / "roots", 0)
    assert remove(shared) == 6
    assert left(shared) == {"bobs", "bobs/f", "roots"}
    assert remove(shared) == 0


def test_links_are_not_followed(shared: Path, tmp_path: Path) -> None:
    """A link goes, what it leads to stays: at the top, below, to a directory of the user's own, and in a loop."""
    precious = directory(tmp_path / "precious")
    file(precious / "f")
    mine = directory(shared / "mine")
    for name, target in {"l": "/etc", "m": str(precious), "n": "..", "o": "o", "p": "/nowhere"}.items():
        for place in (shared, mine):
            (place / name).symlink_to(target)
            give(place / name)
    assert remove(shared) == 11
    assert left(shared) == set()
    assert left(precious) == {"f"}


def test_hard_links(shared: Path, tmp_path: Path) -> None:
    """Only the name that lies there goes."""
    home = file(tmp_path / "thesis")
    os.link(home, shared / "thesis")
    assert remove(shared) == 1
    assert (home.read_text(), home.stat().st_nlink) == ("x", 1)


def test_somebody_elses_file_in_the_users_directory(shared: Path) -> None:
    """It stays, and so do the directories above it; beside it everything goes."""
    deep = directory(directory(shared / "a") / "b")
    file(deep / "mine")
    file(deep / "bobs", BOB)
    file(shared / "a" / "mine")
    file(directory(shared / "a" / "roots", 0) / "mine")
    assert remove(shared) == 2
    assert left(shared) == {"a", "a/b", "a/b/bobs", "a/roots", "a/roots/mine"}


def test_names(shared: Path) -> None:
    """Newlines, bytes that are no text, dashes and quotes are names like others."""
    names = [b"-rf", b"a\nb", b"\xff\xfe", b"'\"$(id)", b" ", b"..."]
    for name in names:
        file(directory(shared / os.fsdecode(name)) / os.fsdecode(name))
    assert remove(shared) == 2 * len(names)
    assert left(shared) == set()


def nest(path: Path, depth: int, uid: int = ALICE) -> int:
    """A directory in a directory in a directory; an open descriptor of the last, deeper than any path may be long."""
    fd = os.open(path, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=fd)
        os.chown("d", uid, uid, dir_fd=fd)
        below = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    return fd


def test_deep(shared: Path) -> None:
    """5,000 levels go, with few descriptors, no recursion, and nothing left of the way."""
    os.close(nest(shared, 5000))
    fds = len(list(Path("/proc/self/fd").iterdir()))
    assert remove(shared) == 5000
    assert left(shared) == set()
    assert len(list(Path("/proc/self/fd").iterdir())) == fds


def test_somebody_elses_file_far_down(shared: Path) -> None:
    """It stays, in a directory of the user's; the way there is shorter."""
    fd = nest(shared, 100)
    os.close(os.open("bobs", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
    os.chown("bobs", BOB, BOB, dir_fd=fd)
    os.close(fd)
    remove(shared)
    (stays,) = shared.rglob("bobs")
    assert stays.stat().st_uid == BOB
    assert stays.relative_to(shared).parts[0] == "d"
    assert all(each.stat().st_uid == ALICE for each in stays.parents if each.is_relative_to(shared / "d"))


def test_modes_do_not_matter(shared: Path) -> None:
    """Directories that not even their owner may read."""
    for number, mode in enumerate((0, 0o400, 0o500, 0o077, 0o777)):
        mine = directory(shared / f"{number}")
        file(directory(mine / "below") / "f")
        (mine / "below").chmod(0)
        mine.chmod(mode)
    assert remove(shared) == 15
    assert os.geteuid() == 0


def test_what_is_new_stays(shared: Path) -> None:
    """A file of a job that started meanwhile, a directory that it made or wrote into; what was there before goes."""
    file(directory(shared / "old") / "f")
    used = directory(shared / "used")
    file(used / "before")
    time.sleep(0.05)
    before = time.clock_gettime_ns(5)
    time.sleep(0.05)
    file(shared / "new")
    directory(shared / "fresh")
    file(used / "now")
    assert remove(shared, before=before) == 2
    assert left(shared) == {"new", "fresh", "used", "used/before", "used/now"}


def test_another_file_system(shared: Path) -> None:
    """What is mounted there is not entered, its mount point stays."""
    at = directory(directory(shared / "a") / "mounted")
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"mode=777,uid={ALICE}", "tmpfs", at], check=True)
    try:
        file(at / "f")
        assert remove(shared) == 0
        assert left(shared) == {"a", "a/mounted", "a/mounted/f"}
    finally:
        subprocess.run(["umount", at], check=True)


def test_a_user_who_is_at_work(shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look at a name and its opening it becomes a link or somebody else's: nothing behind it goes."""
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
    """While a process of the user's does its worst, nothing but that user's own goes, and every call comes back."""
    precious = directory(tmp_path / "precious")
    file(precious / "f")
    tmp_path.chmod(0o711)
    pid = os.fork()
    if pid == 0:
        swap_for_ever(shared)
    try:
        end, removed = time.monotonic() + 1, 0
        while time.monotonic() < end:
            removed += remove(shared)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert removed > 100
    assert left(precious) == {"f"}
    remove(shared)
    assert left(shared) == set()


def test_a_name_that_somebody_else_takes_meanwhile(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look at a file and its deletion it becomes another user's: the kernel says no."""
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
        removal.open_shared(str(shared))
    assert caught.value.strerror == words


def test_a_link_on_the_way(shared: Path, tmp_path: Path) -> None:
    """No part of the path may be one."""
    (tmp_path / "way").symlink_to(tmp_path)
    with pytest.raises(NotADirectoryError):
        removal.open_shared(f"{tmp_path}/way/shared")


def test_file_systems_that_nodes_share(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job on another node may use what lies there."""
    table = Path("/proc/self/mountinfo").read_text()
    at = removal.mounts.Mount("0:99", str(shared), frozenset({"rw"}), "nfs4", frozenset({"rw"}))
    rows = [*map(removal.mounts.parse, table.splitlines()), at]
    monkeypatch.setattr(removal.mounts, "mounts", lambda: iter(rows))
    with pytest.raises(PermissionError) as caught:
        removal.open_shared(str(shared))
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
    rows = [removal.mounts.Mount("0:1", point, frozenset(), each, frozenset()) for point, each in MOUNTS.items()]
    monkeypatch.setattr(removal.mounts, "mounts", lambda: iter(rows))
    assert removal.file_system(path) == kind


def test_any_of(shared: Path) -> None:
    """What lies in the directory itself counts, not what lies below."""
    file(directory(shared / "bobs", BOB) / "f")
    fd = removal.open_shared(str(shared))
    assert (removal.any_of(ALICE, fd), removal.any_of(BOB, fd)) == (False, True)
    os.close(fd)
