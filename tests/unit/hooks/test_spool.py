"""The controller's spool: entries survive, whatever else lies in the directory."""

import json
from pathlib import Path

import pytest

from slurm_plugin.after_run import Ended
from slurm_plugin.hooks import spool

ENDED = Ended(7, 1, ("n1", "n2"))


def test_round_trip(tmp_path: Path) -> None:
    """An entry is read back as written, by another process too: it is one small file."""
    spool.put(tmp_path, ENDED)
    assert list(spool.entries(tmp_path)) == [ENDED]
    assert [path.name for path in tmp_path.iterdir()] == ["7.1.json"]
    assert json.loads((tmp_path / "7.1.json").read_text()) == {"job_id": 7, "told": 1, "nodes": ["n1", "n2"]}


def test_entries_stay_until_removed(tmp_path: Path) -> None:
    """Reading takes nothing out; removing takes out the one, and a second time is no error."""
    other = Ended(7, 2, ("n3",))
    for ended in (ENDED, other):
        spool.put(tmp_path, ended)
    assert list(spool.entries(tmp_path)) == list(spool.entries(tmp_path)) == [ENDED, other]
    spool.remove(tmp_path, ENDED)
    spool.remove(tmp_path, ENDED)
    assert list(spool.entries(tmp_path)) == [other]


def test_order(tmp_path: Path) -> None:
    """The oldest job first, by number."""
    order = [Ended(9, 2, ("n1",)), Ended(9, 10, ("n1",)), Ended(10, 0, ("n1",)), Ended(100, 0, ("n1",))]
    for ended in reversed(order):
        spool.put(tmp_path, ended)
    assert list(spool.entries(tmp_path)) == order


def test_same_end_twice(tmp_path: Path) -> None:
    """Slurm may call the hook again for the same end: one entry."""
    spool.put(tmp_path, ENDED)
    spool.put(tmp_path, ENDED)
    assert list(spool.entries(tmp_path)) == [ENDED]


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
        "é",
    ],
)
def test_unreadable(tmp_path: Path, text: str) -> None:
    """A file that cannot be read, or is another run's, is set aside once, kept for whoever looks; others are served."""
    (tmp_path / "7.1.json").write_text(text)
    other = Ended(8, 0, ("n1",))
    spool.put(tmp_path, other)
    assert list(spool.entries(tmp_path)) == [other]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["7.1.bad", "8.0.json"]
    assert (tmp_path / "7.1.bad").read_text() == text


def test_a_directory_in_its_place(tmp_path: Path) -> None:
    """What cannot even be opened does not stop the worker either."""
    (tmp_path / "7.1.json").mkdir()
    assert list(spool.entries(tmp_path)) == []
    assert [path.name for path in tmp_path.iterdir()] == ["7.1.bad"]


def test_strangers(tmp_path: Path) -> None:
    """Half-written entries, the lock and what was set aside are no entries."""
    for name in (".7.1.json.4711", "lock", "7.1.bad", "x.json"):
        (tmp_path / name).write_text("{}")
    assert list(spool.entries(tmp_path)) == []
    assert len(list(tmp_path.iterdir())) == 4
