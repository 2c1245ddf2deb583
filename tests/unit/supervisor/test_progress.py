"""The progress of a program: its newest checkpoint."""

import errno
import os
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from prechecks import child
from slurm_plugin.supervisor import progress
from slurm_plugin.supervisor.progress import Newest, newest
from tests.guarded import AGES


@pytest.fixture(autouse=True)
def ages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look may take its time."""
    monkeypatch.setattr(newest, "__defaults__", (AGES,))


def at(path: object) -> float:
    """When the newest file was written, of a directory that could be read as a whole."""
    found = newest(str(path))
    assert found.whole
    return found.at


def made(path: Path, at: float) -> Path:
    """A file that was written then."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    os.utime(path, (at, at))
    return path


def test_nothing_is_there(tmp_path: Path) -> None:
    """No checkpoint asked for, none written yet, an empty directory."""
    assert newest("") == newest(str(tmp_path / "none")) == newest(str(tmp_path)) == Newest()


def test_the_newest_file(tmp_path: Path) -> None:
    """In whatever directory; when directories were changed tells nothing: a temporary file may have gone."""
    made(tmp_path / "a", 1000.25)
    made(tmp_path / "step-2/rank-0/model", 3000.5)
    made(tmp_path / "step-1/model", 2000.0)
    assert at(tmp_path) == 3000.5
    (tmp_path / "step-2/rank-0/model").unlink()
    assert at(tmp_path) == 2000.0


def test_a_checkpoint_that_is_a_file(tmp_path: Path) -> None:
    """It may be one, or a link to one; so may a directory of them."""
    made(tmp_path / "all/model", 1000.0)
    (tmp_path / "latest").symlink_to(tmp_path / "all/model")
    (tmp_path / "link").symlink_to(tmp_path / "all")
    assert at(tmp_path / "all/model") == at(tmp_path / "latest") == at(tmp_path / "link") == 1000.0


def test_a_file_of_the_future(tmp_path: Path) -> None:
    """It hides no checkpoint that is written later: the job would seem to make no progress."""
    made(tmp_path / "run/old", time.time() + 100 * 365 * 86400)
    assert at(tmp_path / "run") == 0.0
    assert at(tmp_path / "run/old") == 0.0
    made(tmp_path / "run/new", 2000)
    assert at(tmp_path / "run") == 2000.0


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
    assert at(tmp_path / "here") == 500.0


def test_as_deep_as_checkpoints_are(tmp_path: Path) -> None:
    """Four directories below the one that is named, no deeper."""
    made(tmp_path / "1/2/3/4/at", 1000.0)
    made(tmp_path / "1/2/3/4/5/below", 2000.0)
    assert at(tmp_path) == 1000.0


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
    said: list[float | str | None] = []
    progress._walk(str(tmp_path), said.append)
    assert said == [0.0, 1000.0, True]
    assert len(looked) == 10


def test_too_many_entries_tell_of_no_checkpoint_that_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest directories come first. Without a newer file there, it is not known whether there is one."""
    monkeypatch.setattr(progress, "MOST_ENTRIES", 20)
    for step in range(8):
        for number in range(6):
            made(tmp_path / f"step-{step}/{number}", 1000.0 + step)
        os.utime(tmp_path / f"step-{step}", (1000.0 + step, 1000.0 + step))
    before = newest(str(tmp_path))
    assert before == Newest(1007.0, cut=True)
    assert progress.has_new_checkpoint(before, newest(str(tmp_path))) is None
    made(tmp_path / "step-4/new", 2000.0)
    assert progress.has_new_checkpoint(before, newest(str(tmp_path))) is True


def hanging(monkeypatch: pytest.MonkeyPatch, place: str, sign: Path | None = None) -> None:
    """Has every look at a place of this name hang, and make a file then."""
    stat, scandir = os.stat, os.scandir

    def hang(path: str) -> None:
        if Path(path).name == place:
            if sign:
                sign.touch()
            time.sleep(3000)

    monkeypatch.setattr(os, "stat", lambda path, **options: hang(path) or stat(path, **options))
    monkeypatch.setattr(os, "scandir", lambda path: hang(path) or scandir(path))


def test_a_server_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What says nothing in time is left behind, and is away: not even that there is none is known."""
    made(tmp_path / "ck/model", 1000.0)
    hanging(monkeypatch, "ck")
    start = time.monotonic()
    assert newest(str(tmp_path / "ck"), 0.2) == Newest(away=frozenset({str(tmp_path / "ck")}))
    assert time.monotonic() - start >= 0.2


def test_more_than_can_be_looked_at_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is no server that is away; and what was seen by then counts."""
    made(tmp_path / "model", 1000.0)
    (tmp_path / "large").mkdir()
    hanging(monkeypatch, "large", tmp_path.parent / "hangs")
    looks: list[bool] = []

    def now() -> float:
        """Time is up when what was said before the hang has been read: at the third look after it."""
        looks.append((tmp_path.parent / "hangs").exists())
        return 2 * AGES if sum(looks) > 2 else 0.0

    real = select.poll()
    poll = SimpleNamespace(register=real.register, poll=lambda _ms: real.poll(20))
    monkeypatch.setattr(child, "time", SimpleNamespace(monotonic=now, sleep=time.sleep))
    monkeypatch.setattr(select, "poll", lambda: poll)
    assert newest(str(tmp_path)) == Newest(1000.0, slow=True)


def test_one_bad_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hides nothing of what stands beside it, before it or after it."""
    for name in ("a", "bad", "z"):
        made(tmp_path / name / "model", 1000.0)
    made(tmp_path / "a/model", 3000.0)
    made(tmp_path / "z/model", 2000.0)
    scandir = os.scandir

    def fail(path: str) -> object:
        if Path(path).name == "bad":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", fail)
    found = newest(str(tmp_path))
    assert found == Newest(3000.0, away=frozenset({str(tmp_path / "bad")}))
    assert not found.whole
    made(tmp_path / "z/model", 4000.0)
    assert progress.has_new_checkpoint(found, newest(str(tmp_path))) is True


def test_a_pipe_among_the_checkpoints(tmp_path: Path) -> None:
    """Nothing is opened: nobody waits for who would write it."""
    os.mkfifo(tmp_path / "pipe")
    os.utime(tmp_path / "pipe", (1000.0, 1000.0))
    assert at(tmp_path) == at(tmp_path / "pipe") == 1000.0


def test_no_process_can_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known then, least of all that a server is away; the program goes on."""

    def full() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    made(tmp_path / "a", 1000.0)
    monkeypatch.setattr(os, "fork", full)
    assert newest(str(tmp_path)) == Newest(slow=True)


@pytest.mark.parametrize("call", ["stat", "scandir"])
@pytest.mark.parametrize(
    ("number", "away"),
    [(errno.EIO, True), (errno.ESTALE, True), (errno.ETIMEDOUT, True), (errno.EACCES, False), (errno.ENOENT, False)],
)
def test_a_server_that_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int, *, away: bool
) -> None:
    """Some mounts end a call with an error: nobody knows then what is there. What may not be read is as not there."""

    def fail(_path: str) -> None:
        raise OSError(number, os.strerror(number))

    made(tmp_path / "a", 1000.0)
    monkeypatch.setattr(os, call, fail)
    at = 1000.0 if call == "stat" else 0.0
    assert newest(str(tmp_path)) == Newest(at, frozenset({str(tmp_path)} if away else ()))


A, B = frozenset({"/a"}), frozenset({"/b"})
CHECKPOINTS = {
    "none": (Newest(), Newest(), False),
    "the first": (Newest(), Newest(5.0), True),
    "the same": (Newest(5.0), Newest(5.0), False),
    "the old one is gone": (Newest(5.0), Newest(), False),
    "a new one beside a bad place": (Newest(5.0), Newest(6.0, A), True),
    "a new one beside a place that was bad before": (Newest(5.0, A), Newest(6.0, A | B), True),
    "a new one seen in time": (Newest(5.0), Newest(6.0, slow=True), True),
    "it may have been in the bad place before": (Newest(5.0, A), Newest(6.0), None),
    "it may have been in the other bad place": (Newest(5.0, A), Newest(6.0, B), None),
    "it may have been where there was no time to look": (Newest(5.0, slow=True), Newest(6.0, slow=True), None),
    "nothing is newer than what was seen before": (Newest(5.0, A), Newest(5.0), False),
    "it may be in the bad place": (Newest(5.0), Newest(5.0, A), None),
    "it may be where there was no time to look": (Newest(5.0), Newest(4.0, slow=True), None),
    "nothing is known": (Newest(slow=True), Newest(away=A), None),
}


def test_a_new_checkpoint() -> None:
    """One that is younger than all before; nobody can tell where it may have stood, or stands, unseen."""
    for name, (before, after, is_new) in CHECKPOINTS.items():
        assert progress.has_new_checkpoint(before, after) is is_new, name
