"""Mirrors slurm_plugin/supervisor/staging/dataset.py: lists, fingerprints and copies of a source."""

import os
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.supervisor.staging import dataset
from slurm_plugin.supervisor.staging.dataset import Entry, NodeError, SourceError
from tests.waiting import HANG_S


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A tree with files, directories and links."""
    top = tmp_path / "source"
    (top / "deep/er").mkdir(parents=True)
    (top / "empty").mkdir()
    (top / "deep/er/data").write_bytes(os.urandom(5_000_000))
    (top / "tool").write_text("#!/bin/sh\n")
    (top / "tool").chmod(0o775)
    (top / "link").symlink_to("deep/er/data")
    (top / "out").symlink_to("/nowhere")
    return top


def copied(source: Path, target: Path) -> Path:
    """A copy."""
    dataset.copy(str(source), dataset.listed(str(source)), str(target))
    return target


def test_a_copy_is_what_it_was_made_of(source: Path, tmp_path: Path) -> None:
    """Every byte, time and link; nobody may write to its files."""
    target = copied(source, tmp_path / "target")
    assert {str(each.relative_to(target)) for each in target.rglob("*")} == {
        *("deep", "deep/er", "deep/er/data", "empty", "link", "out", "tool")
    }
    assert (target / "link").read_bytes() == (source / "deep/er/data").read_bytes()
    assert (target / "link").readlink() == Path("deep/er/data")
    assert (target / "out").readlink() == Path("/nowhere")
    assert (target / "tool").stat().st_mode & 0o777 == 0o555
    assert (target / "tool").stat().st_mtime_ns == (source / "tool").stat().st_mtime_ns
    assert {path.stat().st_mode & 0o777 for path in (target, target / "deep", target / "empty")} == {0o500}


def test_a_link_that_leads_out_of_the_source(source: Path, tmp_path: Path) -> None:
    """Leads to the same file in a copy, as do those of a snapshot of the Hugging Face hub."""
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs/abc").write_text("weights")
    (source / "deep/model").symlink_to("../../blobs/abc")
    (source / "deep/..tool").symlink_to("../tool")
    (source / "deep/er/up").symlink_to("../..")
    (tmp_path / "else/where").mkdir(parents=True)
    target = copied(source, tmp_path / "else/where/target")
    assert (target / "deep/model").read_text() == "weights"
    assert (target / "deep/..tool").readlink() == Path("../tool")
    assert (target / "deep/er/up").readlink() == Path("../..")


def test_one_file(source: Path, tmp_path: Path) -> None:
    """Is a source, too."""
    assert copied(source / "tool", tmp_path / "one").read_text() == "#!/bin/sh\n"


def test_what_changes_the_fingerprint(source: Path) -> None:
    """A time, a length, a name, a link, an empty directory, the source's own path; a new look at it does not."""

    def found(path: Path = source) -> str:
        return dataset.fingerprint(str(path), dataset.listed(str(path)))

    seen = [found()]
    assert found() == seen[0]
    os.utime(source / "tool", ns=(1, 1))
    seen.append(found())
    (source / "tool").write_text("#!/bin/bash\n")
    os.utime(source / "tool", ns=(1, 1))
    seen.append(found())
    (source / "tool").rename(source / "tool2")
    seen.append(found())
    (source / "out").unlink()
    (source / "out").symlink_to("/elsewhere")
    seen.append(found())
    (source / "empty2").mkdir()
    seen.append(found())
    source.rename(source.with_name("other"))
    seen.append(found(source.with_name("other")))
    assert len(set(seen)) == len(seen)


def test_what_cannot_be_copied(source: Path) -> None:
    """Is named: what is not there, and what is neither file nor directory nor link."""
    with pytest.raises(SourceError, match=r"'/nowhere/at/all': No such file or directory"):
        dataset.listed("/nowhere/at/all")
    os.mkfifo(source / "deep/pipe")
    with pytest.raises(SourceError, match=r"/deep/pipe' is no file, directory or link"):
        dataset.listed(str(source))


def test_a_server_that_is_away_is_the_nodes_fault(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another node may reach it."""

    def stale(*_: object) -> None:
        raise OSError(116, "Stale file handle", str(source))

    monkeypatch.setattr(os, "scandir", stale)
    with pytest.raises(NodeError, match="Stale file handle"):
        dataset.listed(str(source))


def test_a_source_that_is_being_written_to(source: Path, tmp_path: Path) -> None:
    """Is no data set: half of it would be of before."""
    entries = dataset.listed(str(source))
    (source / "tool").write_text("changed")
    with pytest.raises(SourceError, match="was changed while it was copied"):
        dataset.copy(str(source), entries, str(tmp_path / "target"))


def test_room(source: Path) -> None:
    """In whole blocks, and one more for each name."""
    entries = dataset.listed(str(source / "tool"))
    assert dataset.room(entries, 4096) == 2 * 4096
    assert dataset.room(dataset.listed(str(source)), 4096) >= 5_000_000


def test_a_million_files_are_not_queued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits to be copied takes no memory but its entry."""
    entries = [Entry(f"{number}", "file", 1, 1, 0o600, "") for number in range(20_000)]
    done: list[str] = []
    monkeypatch.setattr(dataset, "_file", lambda _source, _target, entry: done.append(entry.path))
    tracemalloc.start()
    try:
        dataset.copy("/source", entries, str(tmp_path / "target"))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sorted(done) == sorted(each.path for each in entries)
    assert peak < 4_000_000


def test_the_first_failure_ends_the_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody takes another file after it: each is in the middle of one then."""
    files, over = dataset._files, threading.Event()

    def listed(*words: Any) -> Iterator[tuple[str, str, Entry]]:
        try:
            yield from files(*words)
        finally:
            over.set()

    entries = [Entry(f"{number}", "file", 1, 1, 0o600, "") for number in range(1000)]
    begun: list[str] = []

    def broken(_source: str, _target: str, entry: Entry) -> None:
        begun.append(entry.path)
        if entry.path == "5":
            raise OSError(28, "No space left on device")
        if int(entry.path) > 5:
            over.wait(HANG_S)

    monkeypatch.setattr(dataset, "_files", listed)
    monkeypatch.setattr(dataset, "_file", broken)
    with pytest.raises(OSError, match="No space"):
        dataset.copy("/source", entries, str(tmp_path / "target"))
    assert len(begun) <= 5 + dataset.AT_A_TIME
