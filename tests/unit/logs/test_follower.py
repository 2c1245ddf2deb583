"""Following a real file that another process writes."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_plugin.logs import tail
from slurm_plugin.logs.tail import Follower
from tests.waiting import until


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def all_of(follower: Follower) -> list[bytes]:
    return [*follower.poll()]


def append(log: Path, text: bytes) -> None:
    with log.open("ab") as file:
        file.write(text)


def test_whole_lines(log: Path) -> None:
    """A line comes when it has ended; one without an end is given at the end of the following."""
    follower = Follower(log)
    assert all_of(follower) == []
    append(log, b"a\nb")
    assert all_of(follower) == [b"a"]
    append(log, b"c\n\nd")
    assert all_of(follower) == [b"bc", b""]
    assert (follower.rest(), follower.rest()) == (b"d", b"")


def test_from_an_offset(log: Path) -> None:
    """What stands before the offset is left out."""
    append(log, b"a\nb\n")
    follower = Follower(log, 2)
    assert all_of(follower) == [b"b"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"first run\nlong\n", [b"again"]),  # it became shorter
        (b"first\n", [b"second run", b"longer"]),  # it has grown past the old end between two looks
    ],
)
def test_written_anew(log: Path, before: bytes, after: list[bytes]) -> None:
    """A file that was truncated and written again is read from its beginning."""
    append(log, before)
    follower = Follower(log)
    all_of(follower)
    log.write_bytes(b"".join(line + b"\n" for line in after))
    assert all_of(follower) == after


def test_replaced(log: Path) -> None:
    """A file that was renamed over the old one is read from its beginning; one that is gone is waited for."""
    append(log, b"old\n")
    follower = Follower(log)
    all_of(follower)
    log.unlink()
    assert all_of(follower) == []
    other = log.with_name("other")
    other.write_bytes(b"old\nnew\n")
    other.rename(log)
    assert all_of(follower) in ([b"old", b"new"], [b"new"])  # the second where the new file has the old one's inode
    append(log, b"more\n")
    assert all_of(follower) == [b"more"]


def test_becomes_a_pipe_or_a_link(log: Path) -> None:
    """What is no file any more gives nothing, and does not block."""
    append(log, b"a\n")
    follower = Follower(log)
    all_of(follower)
    log.unlink()
    os.mkfifo(log)
    assert all_of(follower) == []
    log.unlink()
    log.symlink_to("/etc/passwd")
    assert all_of(follower) == []


def test_a_large_piece_comes_in_parts(log: Path) -> None:
    """One call reads a bounded number of bytes."""
    with log.open("wb") as file:
        file.write(b"x" * 99 + b"\n")
        file.truncate(3 * tail.AT_ONCE)
    follower = Follower(log)
    assert len(all_of(follower)[0]) == 99
    assert follower.offset == tail.AT_ONCE
    while follower.offset < 3 * tail.AT_ONCE:
        assert all_of(follower) == []
    assert len(follower.rest()) <= tail.LONGEST + tail.BLOCK


@pytest.fixture
def writer(log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A process that writes 2,000 lines in odd pieces."""
    code = (
        "import sys\n"
        "text = b''.join(b'line %d\\n' % n for n in range(2000))\n"
        "with open(sys.argv[1], 'wb', buffering=0) as file:\n"
        "    for at in range(0, len(text), 7): file.write(text[at:at + 7])\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, log]) as process:
        yield process


def test_a_growing_file(log: Path, writer: "subprocess.Popen[bytes]") -> None:
    """Every line comes once and whole, whenever the looks are."""
    follower, found = Follower(log), list[bytes]()

    def over() -> bool:
        found.extend(follower.poll())
        return len(found) >= 2000

    until(over, "all lines")
    assert found == [b"line %d" % number for number in range(2000)]
