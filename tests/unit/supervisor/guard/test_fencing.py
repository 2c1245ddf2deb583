"""The file that names the current run of a job: its content, broken files, and who learns of a later run."""

import os
import select
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from slurm_plugin.records import job_directory
from slurm_plugin.supervisor.guard import fencing
from tests.waiting import HANG_S, until


def test_take(tmp_path: Path) -> None:
    """The last run that took the turn counts. Without one there is no turn."""
    assert fencing.taken(tmp_path) == (-1, -1)
    fencing.take(tmp_path, 0, 0)
    fencing.take(tmp_path, 1, 4)
    assert fencing.taken(tmp_path) == fencing.taken(str(tmp_path)) == (1, 4)
    assert [path.name for path in tmp_path.iterdir()] == [job_directory.TURN]


def test_another_clusters(tmp_path: Path) -> None:
    """Another cluster may have a job with this id in the same directory. A file without a cluster counts as ours."""
    fencing.take(tmp_path, 3, 4, "theirs")
    assert fencing.taken(tmp_path, "ours") == (-1, -1)
    assert fencing.taken(tmp_path, "theirs") == fencing.taken(tmp_path) == (3, 4)
    fencing.take(tmp_path, 1, 2)
    assert fencing.taken(tmp_path, "ours") == (1, 2)
    fencing.take(tmp_path, 1, 2, "two words ")
    assert fencing.taken(tmp_path, "two words ") == (1, 2)


def test_a_file_that_is_not_ours(tmp_path: Path) -> None:
    """The directory is the user's: other contents are ignored, and stop no job."""
    for text in ("", "1", "1 b c", "a b"):
        (tmp_path / job_directory.TURN).write_text(text)
        assert fencing.taken(tmp_path) == (-1, -1), text


def test_what_is_no_file(tmp_path: Path) -> None:
    """A link, a directory and a pipe without a writer block no reader."""
    path = tmp_path / job_directory.TURN
    (tmp_path / "elsewhere").write_text("5 5")
    path.symlink_to(tmp_path / "elsewhere")
    assert fencing.taken(tmp_path) == (-1, -1)
    path.unlink()
    path.mkdir()
    assert fencing.taken(tmp_path) == (-1, -1)
    path.rmdir()
    os.mkfifo(path)
    assert fencing.taken(tmp_path) == (-1, -1)


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    """The caller gets the error."""
    with pytest.raises(OSError, match="No such file"):
        fencing.take(tmp_path / "gone", 0, 0)


@contextmanager
def watched(directory: Path, restart: int, cluster: str = "") -> Iterator[tuple[int, int]]:
    """Yield the descriptor of the watcher and its pid. End both afterwards."""
    pids: list[int] = []
    fork = os.fork

    def noted() -> int:
        pids.append(fork())
        return pids[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fork", noted)
        fd = fencing.watched(str(directory), restart, cluster)
    (pid,) = pids
    try:
        yield fd, pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.close(fd)
        os.waitpid(pid, 0)


def told(fd: int) -> bytes:
    """Return the next message."""
    assert select.select([fd], [], [], HANG_S)[0]
    return os.read(fd, 1)


def silent(fd: int) -> bool:
    """Return whether no message comes in a sufficient time."""
    return not select.select([fd], [], [], 0.2)[0]


def test_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later run is reported. This run's own attempts, and an older run's late write, are not."""
    monkeypatch.setattr(fencing, "LOOK_S", 0.02)
    fencing.take(tmp_path, 1, 1)
    with watched(tmp_path, 2) as (fd, _):
        fencing.take(tmp_path, 2, 2)
        assert told(fd) == fencing.SEEN
        fencing.take(tmp_path, 2, 3)
        assert silent(fd)
        fencing.take(tmp_path, 3, 3)
        assert told(fd) == fencing.LOST


def test_a_number_from_before_is_no_later_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This run has not taken the turn: only later writes count."""
    monkeypatch.setattr(fencing, "LOOK_S", 0.02)
    fencing.take(tmp_path, 9, 12)
    with watched(tmp_path, 2) as (fd, _):
        assert silent(fd)


def test_a_later_number_of_another_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is never reported."""
    monkeypatch.setattr(fencing, "LOOK_S", 0.02)
    fencing.take(tmp_path, 2, 2, "ours")
    with watched(tmp_path, 2, "ours") as (fd, _):
        assert told(fd) == fencing.SEEN
        fencing.take(tmp_path, 3, 3, "theirs")
        assert silent(fd)
        fencing.take(tmp_path, 3, 3, "ours")
        assert told(fd) == fencing.LOST


def test_what_others_put_there_is_no_word_of_ours(tmp_path: Path) -> None:
    """In a directory that a group may write to."""
    fencing.take(tmp_path, 2, 3)
    os.chown(tmp_path / job_directory.TURN, 20001, 20001)
    assert fencing.taken(tmp_path) == (-1, -1)


def test_who_looks_keeps_nothing_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its step would not end while the child keeps the output: a read on a hanging server may take forever."""
    monkeypatch.setattr(fencing, "LOOK_S", 3000.0)
    with watched(tmp_path, 0) as (fd, pid):
        until(lambda: {Path(f"/proc/{pid}/fd/{number}").readlink() for number in (0, 1, 2)} == {Path(os.devnull)})
        os.kill(pid, signal.SIGKILL)
        assert told(fd) == b""  # the end is not a message


def test_who_looks_ends_with_the_guard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no turn then."""
    monkeypatch.setattr(fencing, "LOOK_S", 0.02)
    ours, theirs = socket.socketpair()
    guard = os.fork()
    if not guard:
        socket.send_fds(theirs, [b"x"], [fencing.watched(str(tmp_path), 0)])
        os._exit(0)
    with ours, theirs:
        _, (fd,), _, _ = socket.recv_fds(ours, 1, 1)
    os.waitpid(guard, 0)
    assert told(fd) == b""
    os.close(fd)
