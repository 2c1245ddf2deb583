"""The job's own directory: whole files, and a history that survives what users and crashes do to it."""

import json
import os
from pathlib import Path

import pytest

from slurm_plugin.job import files


def test_directory(tmp_path: Path) -> None:
    """Made where missing, kept where not, below the job's working directory."""
    path = files.directory(tmp_path, 7)
    assert path == tmp_path / ".slurm_plugin" / "7"
    (path / "kept").touch()
    assert files.directory(tmp_path, 7) == path
    assert (path / "kept").exists()


def test_write(tmp_path: Path) -> None:
    """A file is replaced as a whole, and nothing else is left."""
    for text in ("n1 slots=4\n" * 100, "n2 slots=4\n"):
        files.write(tmp_path / "hostfile", text)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"hostfile": "n2 slots=4\n"}


@pytest.mark.parametrize("broken", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    """And nothing beside it, wherever it failed."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    (tmp_path / "hostfile").write_text("old")
    monkeypatch.setattr(os if broken == "fsync" else Path, broken, full)
    with pytest.raises(OSError, match="No space"):
        files.write(tmp_path / "hostfile", "new")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"hostfile": "old"}


def test_record(tmp_path: Path) -> None:
    """One line of JSON an attempt, appended."""
    files.record(tmp_path, {"n": 0, "cause": "a\nb"})
    files.record(tmp_path, {"n": 1, "cause": "ü"})
    lines = (tmp_path / "attempts.jsonl").read_text().splitlines()
    assert list(map(json.loads, lines)) == [{"n": 0, "cause": "a\nb"}, {"n": 1, "cause": "ü"}]


def test_last_cause(tmp_path: Path) -> None:
    """The cause of the attempt just before, and of no other."""
    assert files.last_cause(tmp_path, before=1) == ""
    for number, cause in enumerate(("first", "second")):
        files.record(tmp_path, {"n": number, "cause": cause})
    assert files.last_cause(tmp_path, before=2) == "second"
    assert files.last_cause(tmp_path, before=1) == ""
    assert files.last_cause(tmp_path, before=3) == ""


def test_another_clusters_lines(tmp_path: Path) -> None:
    """Its job of the same number has a history of its own there; a line that names no cluster counts as ours."""
    path = files.directory(tmp_path, 7)
    for number, (cluster, cause) in enumerate([("ours", "a"), ("", "b"), ("theirs", "c")]):
        files.record(path, {"cluster": cluster, "n": number, "cause": cause})
    files.record(path, {"n": 3, "cause": "d"})

    def causes(cluster: str) -> list[str]:
        return [line["cause"] for line in files.history(tmp_path, 7, cluster) or []]

    assert (causes("ours"), causes("theirs"), causes("")) == (["a", "b", "d"], ["b", "c", "d"], ["a", "b", "c", "d"])
    files.record(path, {"cluster": "theirs", "n": 4, "cause": "e"})
    assert files.last_cause(path, before=4, cluster="ours") == "d"
    assert files.last_cause(path, before=5, cluster="ours") == ""
    assert files.last_cause(path, before=5, cluster="theirs") == files.last_cause(path, before=5) == "e"


@pytest.mark.parametrize("text", ["", "\n", "{", '{"n":0}\n{"n":1,"ca', "5\n", "[]\n", "null\n", '{"n":0}\n', '"x"\n'])
def test_broken_history(tmp_path: Path, text: str) -> None:
    """A history that was cut off or edited tells no cause, and stops no attempt."""
    (tmp_path / "attempts.jsonl").write_text(text)
    assert files.last_cause(tmp_path, before=1) == ""


def test_unreadable_history(tmp_path: Path) -> None:
    """The same for bytes that are no text, and for what is no file."""
    (tmp_path / "attempts.jsonl").write_bytes(b"\xff\xfe")
    assert files.last_cause(tmp_path, before=1) == ""
    (tmp_path / "attempts.jsonl").unlink()
    (tmp_path / "attempts.jsonl").mkdir()
    assert files.last_cause(tmp_path, before=1) == ""


@pytest.mark.parametrize("text", [None, "", "[]", "{", "7"])
def test_no_object(tmp_path: Path, text: str | None) -> None:
    """A file that is missing, or holds something else."""
    if text is not None:
        (tmp_path / "x").write_text(text)
    assert files.read_object(tmp_path / "x") is None
    (tmp_path / "x").write_text('{"a": 1}')
    assert files.read_object(tmp_path / "x") == {"a": 1}
