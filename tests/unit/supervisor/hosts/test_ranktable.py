"""The file of a rank table: it is written in two steps, and readers wait."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hostfiles import HostfileError, ranktable
from hostfiles.ranktable_read import parse
from slurm_plugin.supervisor.hosts.ranktable import announced, wait
from tests.ascend import allocation
from tests.refusals import refusal_of

TEXT = ranktable.version_1_0(allocation(2, 2))


class Clock:
    """A clock that only `sleep` advances. During a sleep a file changes."""

    def __init__(self, *happens: Callable[[], object]) -> None:
        self.now = 100.0
        self.happens = list(happens)
        self.said: list[str] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.happens:
            self.happens.pop(0)()


def test_written_in_two_steps(tmp_path: Path) -> None:
    """Readers see that a table is coming, then the whole table."""
    path = tmp_path / ranktable.FILE_NAME
    with announced(path) as publish:
        assert path.read_text() == '{"status": "initializing"}\n'
        publish(TEXT)
    assert path.read_text() == TEXT
    assert list(tmp_path.iterdir()) == [path]


def test_nothing_is_left_after_an_error(tmp_path: Path) -> None:
    """Neither an announcement nor half a table."""
    path = tmp_path / ranktable.FILE_NAME
    with pytest.raises(HostfileError), announced(path) as publish:
        publish(ranktable.version_1_0(allocation(2, 4)))
    assert list(tmp_path.iterdir()) == []
    with announced(path):
        pass  # its writer gave up
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even a temporary file."""

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / ranktable.FILE_NAME
    with pytest.raises(OSError, match="No space left"), announced(path) as publish:
        monkeypatch.setattr(os, "fsync", full)
        publish(TEXT)
    assert list(tmp_path.iterdir()) == []


def test_a_table_that_is_there(tmp_path: Path) -> None:
    """It is read immediately."""
    path = tmp_path / "t.json"
    path.write_text(TEXT)
    clock = Clock()
    assert wait(path, clock=clock, sleep=clock.sleep) == (TEXT, parse(TEXT))
    path.write_text(TEXT, encoding="utf-8-sig")  # as editors on Windows write it
    assert wait(path, clock=clock, sleep=clock.sleep) == (TEXT, parse(TEXT))
    assert clock.now == 100.0


def test_a_table_that_comes(tmp_path: Path) -> None:
    """No file, an empty one, `initializing`, half of a table, half of a character, the whole."""
    path = tmp_path / "t.json"
    clock = Clock(
        lambda: path.write_text(""),
        lambda: path.write_text(ranktable.INITIALIZING),
        lambda: path.write_text(TEXT[:100]),
        lambda: path.write_bytes('{"ä'.encode()[:-1]),
        lambda: path.write_text(TEXT),
    )
    assert wait(path, clock=clock, sleep=clock.sleep)[0] == TEXT
    assert clock.now == 105.0


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        (None, "there is no such file"),
        ("", "rank table: no whole JSON, line 1 column 1: Expecting value"),
        (ranktable.INITIALIZING, "rank table: status is 'initializing'; it is read when it is 'completed'"),
        ('{"status": "complete"}', "rank table: status is 'complete'; it is read when it is 'completed'"),
    ],
)
def test_a_table_that_never_comes(tmp_path: Path, text: str | None, seen: str) -> None:
    """After the deadline, and not a second later, with the last state."""
    path = tmp_path / "t.json"
    if text is not None:
        path.write_text(text)
    clock = Clock()
    said = refusal_of(HostfileError, wait, path, deadline_s=2.5, clock=clock, sleep=clock.sleep, say=clock.said.append)
    assert said == f"{path}: no rank table after 2.5 s; seen last: {seen}"
    assert clock.now == 102.5
    assert clock.said == [f"{path}: waiting up to 2.5 s for a rank table: {seen}"]


def test_a_reader_waits_as_long_as_hccl(tmp_path: Path) -> None:
    """30 minutes by default."""
    clock = Clock()
    with pytest.raises(HostfileError, match="no rank table after 1800 s"):
        wait(tmp_path / "t.json", clock=clock, sleep=clock.sleep)
    assert clock.now == 1900.0


def test_a_broken_table_is_not_waited_for(tmp_path: Path) -> None:
    """It is complete, and will not change."""
    path = tmp_path / "t.json"
    path.write_text(TEXT.replace('"server_count": "2"', '"server_count": "3"'))
    clock = Clock()
    said = refusal_of(HostfileError, wait, path, clock=clock, sleep=clock.sleep)
    assert said == f"{path}: rank table: server_count is 3, and 2 are there"
    assert clock.now == 100.0


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    """Such as a directory in RANK_TABLE_FILE, as on some platforms."""
    assert refusal_of(HostfileError, wait, tmp_path) == f"{tmp_path}: Is a directory"
