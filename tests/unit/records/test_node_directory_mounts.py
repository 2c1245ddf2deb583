"""The user's part of a run's directory is a small separate file system, and is removed with the directory."""

import errno
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_plugin.node import cleanup
from slurm_plugin.records import node_directory
from tests.fakes import FakeSlurm
from tests.unit.node.owned import UNKNOWN

ALICE, RUN = UNKNOWN, "7.0.0"


@pytest.fixture
def run_directory(tmp_path: Path) -> Iterator[str]:
    """With a run of alice's; nothing stays mounted there."""
    made = str(tmp_path / "run")
    node_directory.create(made, RUN, uid=ALICE, gid=ALICE)
    yield made
    while mounts(made):
        subprocess.run(["umount", "-l", mounts(made)[-1]], check=True)


def mounts(below: str) -> list[str]:
    """The mount points there."""
    table = Path("/proc/self/mountinfo").read_text(encoding="utf-8")
    return [point for line in table.splitlines() if (point := line.split()[4]).startswith(below)]


def separate(run_directory: str) -> bool:
    """As the prolog does it."""
    return node_directory.separate(run_directory, RUN, uid=ALICE, gid=ALICE)


def test_what_a_user_cannot_do(run_directory: str) -> None:
    """The user cannot fill the run directory, run a program there, or have a device there."""
    assert separate(run_directory)
    user = Path(run_directory, "jobs", RUN, "user")
    found = user.stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o7777) == (ALICE, ALICE, 0o700)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        (user / "big").write_bytes(bytes(5 << 20))
    (user / "big").unlink()
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        for number in range(1000):
            (user / f"{number}").touch()
    flags = os.statvfs(user).f_flag
    assert flags & os.ST_NOSUID
    assert flags & os.ST_NODEV
    assert flags & os.ST_NOEXEC


def test_there_is_one(run_directory: str) -> None:
    """The prolog may run again; existing files stay."""
    user = Path(run_directory, "jobs", RUN, "user")
    assert separate(run_directory)
    (user / "task.sh").write_text("x")
    node_directory.create(run_directory, RUN, uid=ALICE, gid=ALICE)
    assert separate(run_directory)
    assert mounts(run_directory) == [str(user)]
    assert (user / "task.sh").exists()


def test_it_goes_with_the_directory(run_directory: str) -> None:
    """Also while a process is in it, and with mounts that its user has made on it and in it."""
    user = Path(run_directory, "jobs", RUN, "user")
    separate(run_directory)
    subprocess.run(["mount", "-t", "tmpfs", "test", user], check=True)
    (user / "below").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "test", user / "below"], check=True)
    fd = os.open(user / "below", os.O_RDONLY)
    try:
        assert node_directory.remove(run_directory, RUN)
    finally:
        os.close(fd)
    assert (mounts(run_directory), node_directory.all_runs(run_directory)) == ([], [])


def test_what_a_user_has_mounted_in_a_plain_directory(run_directory: str) -> None:
    """Files of another file system, such as the user's home on a file server, stay."""
    user = Path(run_directory, "jobs", RUN, "user")
    (user / "home").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "test", user / "home"], check=True)
    (user / "home/thesis").touch()
    (user / "task.sh").touch()
    assert not node_directory.remove(run_directory, RUN)
    assert [path.name for path in user.rglob("*")] == ["home", "thesis"]


def test_where_no_epilog_came(run_directory: str) -> None:
    """The periodic check removes it."""
    separate(run_directory)
    os.utime(f"{run_directory}/jobs/{RUN}", (1, 1))
    assert cleanup.sweep_runs({"run_directory": run_directory}, "n1", FakeSlurm) == [RUN]
    assert mounts(run_directory) == []


def test_by_another_path(run_directory: str) -> None:
    """The site's run directory may be below a link, as /var/run is one."""
    link = Path(run_directory).parent / "link"
    link.symlink_to(link.parent)
    assert separate(f"{link}/run")
    assert node_directory.remove(f"{link}/run", RUN)
    assert mounts(run_directory) == []


def test_where_nothing_can_be_mounted(run_directory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain directory is used, and removed."""
    monkeypatch.setattr(node_directory, "OPTIONS", "size=what")
    assert not separate(run_directory)
    assert Path(run_directory, "jobs", RUN, "user").stat().st_uid == ALICE
    assert node_directory.remove(run_directory, RUN)


def test_a_program_that_does_not_end() -> None:
    """No hook waits for mount, umount or rm after the deadline."""
    assert not node_directory._run("/bin/sleep", ["3000"], time.monotonic() + 0.01)


def test_a_planted_link(run_directory: str, tmp_path: Path) -> None:
    """Nothing is mounted on its target."""
    victim, user = tmp_path / "victim", Path(run_directory, "jobs", RUN, "user")
    victim.mkdir()
    user.rmdir()
    user.symlink_to(victim)
    assert not separate(run_directory)
    assert mounts(str(tmp_path)) == []
