"""The controller's spool: entries survive, whatever other files are in the directory."""

import errno
import json
import os
from pathlib import Path

import pytest

from slurm_plugin.controller import requeue_worker
from slurm_plugin.controller.requeue_policy import Ended

ENDED = Ended(7, 1, ("n1", "n2"))


def test_round_trip(tmp_path: Path) -> None:
    """An entry is read back as written, by another process too: it is one small file."""
    requeue_worker.put(tmp_path, ENDED)
    assert list(requeue_worker.entries(tmp_path)) == [ENDED]
    assert [path.name for path in tmp_path.iterdir()] == ["7.1.json"]
    assert json.loads((tmp_path / "7.1.json").read_text()) == {"job_id": 7, "told": 1, "nodes": ["n1", "n2"]}


def test_entries_stay_until_removed(tmp_path: Path) -> None:
    """Reading removes nothing; a second removal is no error."""
    other = Ended(7, 2, ("n3",))
    for ended in (ENDED, other):
        requeue_worker.put(tmp_path, ended)
    assert list(requeue_worker.entries(tmp_path)) == list(requeue_worker.entries(tmp_path)) == [ENDED, other]
    requeue_worker.remove(tmp_path, ENDED)
    requeue_worker.remove(tmp_path, ENDED)
    assert list(requeue_worker.entries(tmp_path)) == [other]


def test_order(tmp_path: Path) -> None:
    """The lowest job id is first."""
    order = [Ended(9, 2, ("n1",)), Ended(9, 10, ("n1",)), Ended(10, 0, ("n1",)), Ended(100, 0, ("n1",))]
    for ended in reversed(order):
        requeue_worker.put(tmp_path, ended)
    assert list(requeue_worker.entries(tmp_path)) == order


def test_same_end_twice(tmp_path: Path) -> None:
    """Slurm may call the hook again for the same end: one entry."""
    requeue_worker.put(tmp_path, ENDED)
    requeue_worker.put(tmp_path, ENDED)
    assert list(requeue_worker.entries(tmp_path)) == [ENDED]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "{}",
        '{"job_id":7,"told":1}',
        '{"job_id":"x","told":1,"nodes":[]}',
        '{"job_id":7,"told":1,"nodes":5}',
        '{"job_id":7,"told":null,"nodes":[]}',
        '{"job_id":8,"told":1,"nodes":["n1"]}',
        "\0\0\0",
        "[" * 5000,
        "é",
    ],
)
def test_unreadable(tmp_path: Path, text: str) -> None:
    """A file that cannot be read, or has another run's name, is renamed once; the others are served."""
    (tmp_path / "7.1.json").write_text(text)
    other = Ended(8, 0, ("n1",))
    requeue_worker.put(tmp_path, other)
    assert list(requeue_worker.entries(tmp_path)) == [other]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["7.1.bad", "8.0.json"]
    assert (tmp_path / "7.1.bad").read_text() == text


def test_a_directory_in_its_place(tmp_path: Path) -> None:
    """A directory with an entry's name does not stop the worker."""
    (tmp_path / "7.1.json").mkdir()
    assert list(requeue_worker.entries(tmp_path)) == []
    assert [path.name for path in tmp_path.iterdir()] == ["7.1.bad"]


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO])
def test_an_entry_that_cannot_be_read_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """It stays, and is read the next time."""
    requeue_worker.put(tmp_path, ENDED)

    def refuse(path: Path, **_: object) -> str:
        raise OSError(number, os.strerror(number), str(path))

    with monkeypatch.context() as context:
        context.setattr(Path, "read_text", refuse)
        assert list(requeue_worker.entries(tmp_path)) == []
    assert list(requeue_worker.entries(tmp_path)) == [ENDED]


def test_strangers(tmp_path: Path) -> None:
    """Unfinished entries, the lock and renamed files are not entries."""
    for name in (".7.1.json.4711", "lock", "7.1.bad", "x.json"):
        (tmp_path / name).write_text("{}")
    assert list(requeue_worker.entries(tmp_path)) == []
    assert len(list(tmp_path.iterdir())) == 4
