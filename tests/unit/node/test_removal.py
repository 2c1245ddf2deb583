"""The removal of one user's files from a directory that all can write: hostile trees, real files of real owners."""

import os
import socket
import subprocess
import time
from pathlib import Path

from prechecks import files
from slurm_plugin.node import removal
from slurm_plugin.records import node_directory
from tests.unit.node.owned import ALICE, BOB, directory, file, give, left, remove


def test_one_users_files(shared: Path) -> None:
    """All files of that user, of any kind and depth, are removed; no others."""
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
    """A link is removed, its target stays: at the top, below, in a directory of the user's own, and in a loop."""
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
    """Only this name is removed."""
    home = file(tmp_path / "thesis")
    os.link(home, shared / "thesis")
    assert remove(shared) == 1
    assert (home.read_text(), home.stat().st_nlink) == ("x", 1)


def test_somebody_elses_file_in_the_users_directory(shared: Path) -> None:
    """It stays, with the directories above it; all files beside it are removed."""
    deep = directory(directory(shared / "a") / "b")
    file(deep / "mine")
    file(deep / "bobs", BOB)
    file(shared / "a" / "mine")
    file(directory(shared / "a" / "roots", 0) / "mine")
    assert remove(shared) == 2
    assert left(shared) == {"a", "a/b", "a/b/bobs", "a/roots", "a/roots/mine"}


def test_names(shared: Path) -> None:
    """Newlines, bytes that are no text, dashes and quotes are ordinary names."""
    names = [b"-rf", b"a\nb", b"\xff\xfe", b"'\"$(id)", b" ", b"..."]
    for name in names:
        file(directory(shared / os.fsdecode(name)) / os.fsdecode(name))
    assert remove(shared) == 2 * len(names)
    assert left(shared) == set()


def nest(path: Path, depth: int) -> int:
    """A directory in a directory in a directory; an open descriptor of the last, deeper than any path may be long."""
    fd = os.open(path, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=fd)
        os.chown("d", ALICE, ALICE, dir_fd=fd)
        below = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    return fd


def descriptors() -> set[Path]:
    """What this process has open."""
    return set(filter(Path.exists, [*Path("/proc/self/fd").iterdir()]))


def test_deep(shared: Path) -> None:
    """2,500 levels are removed, with few descriptors and no recursion."""
    os.close(nest(shared, 2500))
    before = descriptors()
    assert remove(shared) == 2500
    assert left(shared) == set()
    assert descriptors() <= before


def test_somebody_elses_file_far_down(shared: Path) -> None:
    """It stays, in a directory of the user's that has moved up."""
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
    """Directories that even their owner cannot read are removed."""
    for number, mode in enumerate((0, 0o400, 0o500, 0o077, 0o777)):
        mine = directory(shared / f"{number}")
        file(directory(mine / "below") / "f")
        (mine / "below").chmod(0)
        mine.chmod(mode)
    assert remove(shared) == 15
    assert os.geteuid() == 0


def test_what_is_new_stays(shared: Path) -> None:
    """Files and directories that a job has made or written since then stay; older ones are removed."""
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
    """Mounts are not entered, and their mount point stays."""
    at = directory(directory(shared / "a") / "mounted")
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"mode=777,uid={ALICE}", "tmpfs", at], check=True)
    try:
        file(at / "f")
        assert remove(shared) == 0
        assert left(shared) == {"a", "a/mounted", "a/mounted/f"}
    finally:
        subprocess.run(["umount", at], check=True)


def test_entries(shared: Path) -> None:
    """Entries of the directory itself count, not those below."""
    file(directory(shared / "bobs", BOB) / "f")
    with files.Opened(node_directory.open_shared(str(shared))) as fd:
        assert [(name, found.st_uid) for name, found in removal.entries(fd)] == [("bobs", BOB)]
