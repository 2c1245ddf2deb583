"""Whether a program gets on: its newest checkpoint, and how much it has written."""

import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from slurm_plugin.job import progress
from slurm_plugin.job.progress import newest, written


def made(path: Path, at: float) -> Path:
    """A file that was written then."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    os.utime(path, (at, at))
    return path


def test_nothing_is_there(tmp_path: Path) -> None:
    """No checkpoint asked for, none written yet, an empty directory."""
    assert newest("") == newest(str(tmp_path / "none")) == newest(str(tmp_path)) == 0.0


def test_the_newest_file(tmp_path: Path) -> None:
    """In whatever directory; when directories were changed tells nothing: a temporary file may have gone."""
    made(tmp_path / "a", 1000.25)
    made(tmp_path / "step-2/rank-0/model", 3000.5)
    made(tmp_path / "step-1/model", 2000.0)
    assert newest(str(tmp_path)) == 3000.5
    (tmp_path / "step-2/rank-0/model").unlink()
    assert newest(str(tmp_path)) == 2000.0


def test_a_checkpoint_that_is_a_file(tmp_path: Path) -> None:
    """It may be one, or a link to one; so may a directory of them."""
    made(tmp_path / "all/model", 1000.0)
    (tmp_path / "latest").symlink_to(tmp_path / "all/model")
    (tmp_path / "link").symlink_to(tmp_path / "all")
    assert newest(str(tmp_path / "all/model")) == newest(str(tmp_path / "latest")) == 1000.0
    assert newest(str(tmp_path / "link")) == 1000.0


def test_links_are_not_followed(tmp_path: Path) -> None:
    """They may lead in circles, or to what the program reads; a link that is set anew is a sign all the same."""
    made(tmp_path / "data/new", 9000.0)
    link = tmp_path / "here/data"
    link.parent.mkdir()
    link.symlink_to(tmp_path / "data")
    os.utime(link, (500.0, 500.0), follow_symlinks=False)
    circle = tmp_path / "here/circle"
    circle.symlink_to(tmp_path / "here")
    os.utime(circle, (400.0, 400.0), follow_symlinks=False)
    assert newest(str(tmp_path / "here")) == 500.0


def test_as_deep_as_checkpoints_are(tmp_path: Path) -> None:
    """Four directories below the one that is named, no deeper."""
    made(tmp_path / "1/2/3/4/at", 1000.0)
    made(tmp_path / "1/2/3/4/5/below", 2000.0)
    assert newest(str(tmp_path)) == 1000.0


@pytest.mark.parametrize("where", ["", "below/"])
def test_too_many_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """Only so many are looked at, in one directory as in many."""
    monkeypatch.setattr(progress, "MOST_ENTRIES", 10)
    for number in range(40):
        made(tmp_path / f"{where}{number}", 1000.0)
    looked: list[str] = []
    scandir = os.scandir

    @contextmanager
    def counted(path: str) -> Iterator[Iterator["os.DirEntry[str]"]]:
        with scandir(path) as entries:
            yield (looked.append(entry.name) or entry for entry in entries)

    monkeypatch.setattr(os, "scandir", counted)
    assert progress._newest(str(tmp_path)) == 1000.0
    assert len(looked) == 10


def test_a_server_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be read in time is left behind, and tells nothing: not even that there is none."""
    monkeypatch.setattr(progress, "_newest", lambda _path: time.sleep(60))
    start = time.monotonic()
    assert newest(str(tmp_path), 0.2) is None
    assert 0.2 <= time.monotonic() - start < 5


def test_a_pipe_among_the_checkpoints(tmp_path: Path) -> None:
    """Nothing is opened: nobody waits for who would write it."""
    os.mkfifo(tmp_path / "pipe")
    os.utime(tmp_path / "pipe", (1000.0, 1000.0))
    assert newest(str(tmp_path), 5.0) == newest(str(tmp_path / "pipe"), 5.0) == 1000.0


def test_no_process_can_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known then; the program goes on."""

    def full() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    made(tmp_path / "a", 1000.0)
    monkeypatch.setattr(os, "fork", full)
    assert newest(str(tmp_path)) is None


@pytest.mark.parametrize("call", ["stat", "scandir"])
@pytest.mark.parametrize(
    ("number", "found"),
    [(errno.EIO, None), (errno.ESTALE, None), (errno.ETIMEDOUT, None), (errno.EACCES, 0.0), (errno.ENOENT, 0.0)],
)
def test_a_server_that_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int, found: float | None
) -> None:
    """Some mounts end a call with an error: nobody knows then what is there. What may not be read is as not there."""

    def fail(_path: str) -> None:
        raise OSError(number, os.strerror(number))

    made(tmp_path / "a", 1000.0)
    monkeypatch.setattr(os, call, fail)
    assert newest(str(tmp_path)) == (1000.0 if call == "stat" and found is not None else found)


@pytest.mark.parametrize(
    ("before", "after", "is_new"),
    [
        (0.0, 0.0, False),
        (0.0, 5.0, True),
        (5.0, 5.0, False),
        (5.0, 0.0, False),
        (None, 5.0, None),  # it may be one from before
        (5.0, None, None),
        (None, None, None),
    ],
)
def test_a_new_checkpoint(before: float | None, after: float | None, is_new: bool | None) -> None:
    """One that is younger than all before; nobody knows where either is not known."""
    assert progress.made(before, after) is is_new


@pytest.fixture
def streams() -> Iterator[None]:
    """Our stdout and stderr, which are back afterwards."""
    kept = [os.dup(fd) for fd in (1, 2)]
    yield
    for fd, old in zip((1, 2), kept, strict=True):
        os.dup2(old, fd)
        os.close(old)


@pytest.mark.usefixtures("streams")
def test_written(tmp_path: Path) -> None:
    """How long the files are, whoever writes them; pipes and terminals have no length."""
    with (tmp_path / "out").open("w") as out, (tmp_path / "err").open("w") as err:
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
        assert written() == (0, 0)
        with (tmp_path / "out").open("a") as other:
            other.write("12345")
        assert written() == (5, 0)
    read, write = os.pipe()
    os.dup2(write, 2)
    assert written() == (5,)
    os.dup2(write, 1)
    assert written() == ()
    os.close(read)
    os.close(write)
