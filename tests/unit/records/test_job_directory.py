"""The job's own directory: whole files, and a history that survives damage by users and crashes."""

import errno
import json
import os
from pathlib import Path

import pytest

from slurm_plugin.records import job_directory
from tests.unit.pages import page, rows, words


def test_directory(tmp_path: Path) -> None:
    """It is made below the job's working directory if it is missing."""
    path = job_directory.directory(tmp_path, 7)
    assert path == tmp_path / ".slurm_plugin" / "7"
    (path / "kept").touch()
    assert job_directory.directory(tmp_path, 7) == path
    assert (path / "kept").exists()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.ENOTDIR])
def test_a_directory_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Programs that do not need it start, and every write fails, also after another user has made the directory."""

    def fails(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "mkdir", fails)
        path = job_directory.directory(tmp_path, 7)
        with pytest.raises(OSError, match=os.strerror(number)):
            job_directory.directory(tmp_path, 7, needed=True)
    (tmp_path / ".slurm_plugin" / "7").mkdir(parents=True)
    with pytest.raises(NotADirectoryError):
        job_directory.record(path, {"n": 0})
    assert job_directory.attempts(path) is None


def test_another_users_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not used."""
    path = job_directory.directory(tmp_path, 7)
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    assert job_directory.directory(tmp_path, 7) != path
    with pytest.raises(FileExistsError, match="it is not yours"):
        job_directory.directory(tmp_path, 7, needed=True)


def test_record(tmp_path: Path) -> None:
    """One line of JSON for each attempt, appended."""
    job_directory.record(tmp_path, {"n": 0, "cause": "a\nb"})
    job_directory.record(tmp_path, {"n": 1, "cause": "ü"})
    lines = (tmp_path / "attempts.jsonl").read_text().splitlines()
    assert list(map(json.loads, lines)) == [{"n": 0, "cause": "a\nb"}, {"n": 1, "cause": "ü"}]


def test_a_line_that_was_cut_off(tmp_path: Path) -> None:
    """Only this line is lost: the next attempt is recorded and read."""
    job_directory.record(tmp_path, {"n": 0, "cause": "first"})
    with (tmp_path / "attempts.jsonl").open("a") as file:
        file.write('{"n":1,"cau')
    job_directory.record(tmp_path, {"n": 2, "cause": "third"})
    assert job_directory.last_cause(tmp_path, before=3) == "third"
    assert (tmp_path / "attempts.jsonl").read_text().count("\n") == 3


def test_last_cause(tmp_path: Path) -> None:
    """The cause of the last attempt, of no other."""
    assert job_directory.last_cause(tmp_path, before=1) == ""
    for number, cause in enumerate(("first", "second")):
        job_directory.record(tmp_path, {"n": number, "cause": cause})
    assert job_directory.last_cause(tmp_path, before=2) == "second"
    assert job_directory.last_cause(tmp_path, before=1) == ""
    assert job_directory.last_cause(tmp_path, before=3) == ""


def test_numbers_that_json_lacks(tmp_path: Path) -> None:
    """They are not known: `--json` of a reader stays valid."""
    (tmp_path / "attempts.jsonl").write_text('{"a": NaN, "b": [-Infinity, 1e999, -1e-999, 1.5]}')
    assert job_directory.attempts(tmp_path) == [{"a": None, "b": [None, None, 0.0, 1.5]}]


def test_another_clusters_lines(tmp_path: Path) -> None:
    """Another cluster's job with the same id has its own history there. A line without a cluster counts as ours."""
    path = job_directory.directory(tmp_path, 7)
    for number, (cluster, cause) in enumerate([("ours", "a"), ("", "b"), ("theirs", "c")]):
        job_directory.record(path, {"cluster": cluster, "n": number, "cause": cause})
    job_directory.record(path, {"n": 3, "cause": "d"})

    def causes(cluster: str) -> list[str]:
        return [line["cause"] for line in job_directory.attempts(tmp_path / job_directory.OURS / "7", cluster) or []]

    assert (causes("ours"), causes("theirs"), causes("")) == (["a", "b", "d"], ["b", "c", "d"], ["a", "b", "c", "d"])
    job_directory.record(path, {"cluster": "theirs", "n": 4, "cause": "e"})
    assert job_directory.last_cause(path, before=4, cluster="ours") == "d"
    assert job_directory.last_cause(path, before=5, cluster="ours") == ""
    assert job_directory.last_cause(path, before=5, cluster="theirs") == job_directory.last_cause(path, before=5) == "e"


def test_broken_history(tmp_path: Path) -> None:
    """A truncated or edited history gives no cause, and stops no attempt."""
    for text in ["", "\n", "{", '{"n":0}\n{"n":1,"ca', "5\n", "[]\n", "null\n", '{"n":0}\n', '"x"\n']:
        (tmp_path / "attempts.jsonl").write_text(text)
        assert job_directory.last_cause(tmp_path, before=1) == "", text


def test_unreadable_history(tmp_path: Path) -> None:
    """The same for bytes that are no UTF-8, and for other things than files."""
    (tmp_path / "attempts.jsonl").write_bytes(b"\xff\xfe")
    assert job_directory.last_cause(tmp_path, before=1) == ""
    (tmp_path / "attempts.jsonl").unlink()
    (tmp_path / "attempts.jsonl").mkdir()
    assert job_directory.last_cause(tmp_path, before=1) == ""


@pytest.mark.parametrize("text", [None, "", "[]", "{", "7"])
def test_no_object(tmp_path: Path, text: str | None) -> None:
    """A missing file, or other content."""
    if text is not None:
        (tmp_path / "x").write_text(text)
    assert job_directory.read_object(tmp_path / "x") is None
    (tmp_path / "x").write_text('{"a": 1}')
    assert job_directory.read_object(tmp_path / "x") == {"a": 1}


@pytest.mark.parametrize("name", [*("model.pt", "notes", "errors2", "xturn", "turn.bak", ".turn", "log.1", "..log.1")])
def test_names_that_are_not_ours(name: str) -> None:
    """Other files in a job's directory are never removed."""
    assert not job_directory.is_ours(name)


def test_the_page_names_our_files() -> None:
    """Every file in a job's directory that the page names is one that may be removed."""
    names = {
        name.partition("/")[0].replace(".N", ".1")
        for row in rows(page("reference/files.md").partition("## The job's directory")[2], "file")
        for name in words(row[0])
    }
    assert len(names) > 10
    assert {name for name in names if not job_directory.is_ours(name)} == set()
    assert all(map(job_directory.is_ours, (".output.json.123", "stage-in.n1", "requests")))
