"""Reading a part of a large log: its last lines, what is newer than a time, and the lines that begin with a mark."""

import os
from pathlib import Path

import pytest

from slurm_plugin.logs import lines, tail
from slurm_plugin.logs.tail import BLOCK, Range


def whole(path: Path) -> Range:
    return Range(0, path.stat().st_size)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.mark.parametrize(
    ("text", "count", "last"),
    [
        ("a\nb\nc\n", 2, "b\nc\n"),
        ("a\nb\nc", 2, "b\nc"),
        ("a\nb\n", 9, "a\nb\n"),
        ("a\n\n\n", 2, "\n\n"),
        ("a", 1, "a"),
        ("a\nb", 0, ""),
        ("", 3, ""),
        ("x" * 3 * BLOCK + "\nb\n", 1, "b\n"),
        ("a\n" + "x" * 3 * BLOCK + "\n", 1, "x" * 3 * BLOCK + "\n"),
        ("".join(f"{number}\n" for number in range(BLOCK)), 3, "".join(f"{BLOCK - each}\n" for each in (3, 2, 1))),
    ],
)
def test_last_lines(log: Path, text: str, count: int, last: str) -> None:
    """As tail(1), with and without a newline at the end, over blocks."""
    log.write_text(text)
    found = tail.last_lines(log, whole(log), count)
    assert text[found.start : found.end] == last


@pytest.mark.parametrize("text", [b"", b"a", b"a\n", b"a\nb", b"\n\n", b"x" * BLOCK + b"\ny", b"a\0\xff\nb\r\n"])
def test_read(log: Path, text: bytes) -> None:
    """All lines come, whole, over the ends of blocks."""
    log.write_bytes(text)
    assert list(tail.read(log, whole(log))) == text.splitlines(keepends=False) if b"\r" not in text else True
    assert b"\n".join(tail.read(log, whole(log))) == text.removesuffix(b"\n")


def test_a_line_of_a_gigabyte(log: Path) -> None:
    """Of a very long line both ends are kept. The file is sparse: it has a hole."""
    with log.open("wb") as file:
        file.write(b"begin")
        file.truncate(1 << 26)
        file.seek(1 << 26)
        file.write(b"end\nnext\n")
    first, second = tail.read(log, whole(log))
    assert len(first) <= tail.LONGEST + BLOCK
    assert (first[:5], first[-3:], second) == (b"begin", b"end", b"next")
    assert len(lines.shown(first)) < 3 * lines.LONGEST


def test_since(log: Path) -> None:
    """The part begins shortly before the time, found by a search in few steps."""
    log.write_text("no time\n" + "".join(f"{number} {'x' * 100}\n-\n" for number in range(20_000)))
    asked = 0

    def time_of(raw: bytes) -> float | None:
        nonlocal asked
        asked += 1
        return float(number) if (number := raw.split(b" ")[0]).isdigit() else None

    found = tail.since(log, whole(log), 15_000.0, time_of)
    assert found is not None
    first = next(tail.read(log, found))
    assert 14_000 < int(first.split()[0]) < 15_000
    assert asked < 100
    part = whole(log)
    assert tail.since(log, part, -1.0, time_of) is part
    assert tail.since(log, part, 1e9, time_of) is not None
    log.write_text("a\nb\n")
    assert tail.since(log, whole(log), 0.0, time_of) is None


def test_marks(log: Path) -> None:
    """Lines that begin with a mark are found at the beginning, over the ends of blocks, and not inside lines."""
    text = b"[m] 0\nx [m] no\n" + b"y" * (tail.LONGEST - 18) + b"\n[m] 1\n" + b"z" * tail.LONGEST + b"\n[m] 2"
    log.write_bytes(text)
    found = list(tail.marks(log, whole(log), b"[m] "))
    assert [line for _, line in found] == [b"[m] 0", b"[m] 1", b"[m] 2"]
    assert all(text[offset:].startswith(line) for offset, line in found)


def test_what_is_no_file(tmp_path: Path) -> None:
    """A pipe without a writer does not block, and a device or a directory is refused; root follows no link."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("/etc/passwd")
    for path in (tmp_path / "fifo", tmp_path, Path("/dev/zero"), tmp_path / "link", tmp_path / "missing"):
        with pytest.raises(OSError), tail.opened(path):
            pass
