"""Whose turn it is: what is written, what is made of broken files, and who is told of a later run."""

import os
import select
import signal
import time
from pathlib import Path

import pytest

from slurm_plugin.job import turn
from tests.children import children


def test_take(tmp_path: Path) -> None:
    """The last one counts; where nobody has said anything, it is nobody's turn."""
    assert turn.taken(tmp_path) == (-1, -1)
    turn.take(tmp_path, 0, 0)
    turn.take(tmp_path, 1, 4)
    assert turn.taken(tmp_path) == turn.taken(str(tmp_path)) == (1, 4)
    assert [path.name for path in tmp_path.iterdir()] == [turn.NAME]


def test_another_clusters(tmp_path: Path) -> None:
    """It may have a job of this number in the same directory; a file that does not say whose it is counts as ours."""
    turn.take(tmp_path, 3, 4, "theirs")
    assert turn.taken(tmp_path, "ours") == (-1, -1)
    assert turn.taken(tmp_path, "theirs") == turn.taken(tmp_path) == (3, 4)
    turn.take(tmp_path, 1, 2)
    assert turn.taken(tmp_path, "ours") == (1, 2)
    turn.take(tmp_path, 1, 2, "two words ")
    assert turn.taken(tmp_path, "two words ") == (1, 2)


@pytest.mark.parametrize("text", ["", "1", "1 b c", "a b"])
def test_a_file_that_is_not_ours(tmp_path: Path, text: str) -> None:
    """It is the user's directory: what stands there says nothing, and stops nothing."""
    (tmp_path / turn.NAME).write_text(text)
    assert turn.taken(tmp_path) == (-1, -1)


def test_what_is_no_file(tmp_path: Path) -> None:
    """A link, a directory and a pipe that nobody writes hold nobody up."""
    path = tmp_path / turn.NAME
    (tmp_path / "elsewhere").write_text("5 5")
    path.symlink_to(tmp_path / "elsewhere")
    assert turn.taken(tmp_path) == (-1, -1)
    path.unlink()
    path.mkdir()
    assert turn.taken(tmp_path) == (-1, -1)
    path.rmdir()
    os.mkfifo(path)
    assert turn.taken(tmp_path) == (-1, -1)


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    """The caller is to know."""
    with pytest.raises(OSError, match="No such file"):
        turn.take(tmp_path / "gone", 0, 0)


def child() -> int:
    """The one process that this one has started."""
    (pid,) = children()
    return pid


def told(fd: int, seconds: float) -> bytes | None:
    """What is read within a time; None for nothing yet."""
    return os.read(fd, 1) if select.select([fd], [], [], seconds)[0] else None


def test_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later run is told of; this one's own attempts, and an older run's last word, are not."""
    monkeypatch.setattr(turn, "LOOK_S", 0.02)
    turn.take(tmp_path, 1, 1)
    fd = turn.watched(str(tmp_path), 2)
    try:
        turn.take(tmp_path, 2, 2)
        assert told(fd, 10) == turn.SEEN
        turn.take(tmp_path, 2, 3)
        assert told(fd, 0.2) is None
        turn.take(tmp_path, 3, 3)
        assert told(fd, 10) == turn.LOST
    finally:
        os.close(fd)
        os.wait()


def test_a_number_from_before_is_no_later_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This run took no turn: only what comes after ours counts."""
    monkeypatch.setattr(turn, "LOOK_S", 0.02)
    turn.take(tmp_path, 9, 12)
    fd = turn.watched(str(tmp_path), 2)
    pid = child()
    try:
        assert told(fd, 0.2) is None
    finally:
        os.kill(pid, signal.SIGKILL)
        os.close(fd)
        os.waitpid(pid, 0)


def test_a_later_number_of_another_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is not told of, whenever it comes."""
    monkeypatch.setattr(turn, "LOOK_S", 0.02)
    turn.take(tmp_path, 2, 2, "ours")
    fd = turn.watched(str(tmp_path), 2, "ours")
    try:
        assert told(fd, 10) == turn.SEEN
        turn.take(tmp_path, 3, 3, "theirs")
        assert told(fd, 0.2) is None
        turn.take(tmp_path, 3, 3, "ours")
        assert told(fd, 10) == turn.LOST
    finally:
        os.close(fd)
        os.wait()


def test_what_others_put_there_is_no_word_of_ours(tmp_path: Path) -> None:
    """In a directory that a group may write to."""
    turn.take(tmp_path, 2, 3)
    os.chown(tmp_path / turn.NAME, 20001, 20001)
    assert turn.taken(tmp_path) == (-1, -1)


def test_who_looks_keeps_nothing_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its step would not end while it holds the output: a read on a server that hangs may take for ever."""
    monkeypatch.setattr(turn, "LOOK_S", 60.0)
    fd = turn.watched(str(tmp_path), 0)
    pid = child()
    try:
        end = time.monotonic() + 60
        while {Path(f"/proc/{pid}/fd/{standard}").readlink() for standard in (0, 1, 2)} != {Path(os.devnull)}:
            assert time.monotonic() < end
            time.sleep(0.01)
        os.kill(pid, signal.SIGKILL)
        assert told(fd, 10) == b""  # an end is no word
    finally:
        os.close(fd)
        os.waitpid(pid, 0)


def test_who_looks_ends_with_the_guard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is nobody's then."""
    monkeypatch.setattr(turn, "LOOK_S", 0.02)
    read, write = os.pipe()
    guard = os.fork()
    if not guard:
        turn.watched(str(tmp_path), 0)  # its child has `write` too
        os._exit(0)
    os.close(write)
    try:
        os.waitpid(guard, 0)
        assert told(read, 10) == b""
    finally:
        os.close(read)
