"""Saving a job's logs and records: what is in it, and what can never be."""

import os
import stat
import tarfile
from pathlib import Path

import pytest

from slurm_plugin.cli.nodeside import log_bundle
from slurm_plugin.errors import UsageError
from slurm_plugin.records import job_directory, log_files
from tests.unit.node.owned import left


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A job's directory with records, and what is not to be saved."""
    (tmp_path / "work").mkdir()
    own = job_directory.directory(tmp_path / "work", 7)
    log_files.write_output(own, log_files.Output("train"))
    job_directory.record(own, {"n": 0})
    (own / "launch.json").write_text("PASSWORD")
    (own / "model.pt").write_text("checkpoint")
    (own / "requests").mkdir()
    (own / "requests" / "1").write_text("x")
    (own / "turn").symlink_to("/etc/passwd")
    os.mkfifo(own / "log")
    return own


def logs(own: Path) -> list[Path]:
    """Logs of the job: two with one name, a link, a pipe, and one that is missing."""
    work = own.parents[1]
    found = [work / "out", work / "a" / "out", work / "link", work / "fifo", work / "missing"]
    found[1].parent.mkdir()
    found[0].write_text("one\n")
    found[1].write_text("two\n")
    found[2].symlink_to("/etc/passwd")
    os.mkfifo(found[3])
    return found


SAVED = {
    "logs", "logs/out", "logs/out.1", "records", "records/output.json", "records/attempts.jsonl", "records/requests",
    "records/requests/1",
}  # fmt: skip


def test_a_directory(own: Path, tmp_path: Path) -> None:
    """Logs and records are there, only for their owner; no link, pipe, secret or checkpoint."""
    target = log_bundle.save(tmp_path / "saved", 7, own, logs(own))
    assert left(target) == SAVED
    assert (target / "logs" / "out.1").read_text() == "two\n"
    assert stat.S_IMODE(target.stat().st_mode) == 0o700
    assert stat.S_IMODE((target / "logs" / "out").stat().st_mode) == 0o600
    assert {path.name for path in tmp_path.iterdir()} == {"work", "saved"}


@pytest.mark.parametrize("name", ["job.tar.gz", "job.tgz"])
def test_an_archive(own: Path, tmp_path: Path, name: str) -> None:
    """The same as an archive, below a directory with the job's number."""
    target = log_bundle.save(tmp_path / name, 7, own, logs(own))
    with tarfile.open(target) as archive:
        assert {each.name for each in archive} == {f"job-7/{each}" for each in SAVED if "." in each or each[-1] in "t1"}
        file = archive.extractfile("job-7/logs/out")
        assert file is not None
        assert file.read() == b"one\n"
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_what_exists_stays(own: Path, tmp_path: Path) -> None:
    """A file, a directory or a dangling link in the place is left alone."""
    (tmp_path / "there").mkdir()
    (tmp_path / "dangling").symlink_to("/nonexistent")
    for name in ("there", "dangling"):
        with pytest.raises(UsageError, match="it exists"):
            log_bundle.save(tmp_path / name, 7, own, [])


def test_nothing_half_done(own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an error nothing remains; the message says why."""

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", "x")

    with pytest.raises(UsageError, match="No such file or directory"):
        log_bundle.save(tmp_path / "missing" / "saved", 7, own, [])
    monkeypatch.setattr(os, "utime", full)
    with pytest.raises(UsageError, match="No space left on device"):
        log_bundle.save(tmp_path / "saved", 7, own, logs(own))
    assert {path.name for path in tmp_path.iterdir()} == {"work"}


def test_a_log_that_changes(tmp_path: Path) -> None:
    """As many bytes as the file had are saved: what comes later is left out, and what is cut off is zeros."""
    path = tmp_path / "log"
    path.write_bytes(b"12345678")
    with log_bundle._opened(path) as found:
        assert found is not None
        path.write_bytes(b"12")
        assert found[0].read() == b"12\0\0\0\0\0\0"
    with log_bundle._opened(path) as found:
        assert found is not None
        path.write_bytes(b"12345678")
        assert (found[0].read(), found[0].read()) == (b"12", b"")
