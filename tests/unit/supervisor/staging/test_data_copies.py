"""Copies on a real file system, by several processes at the same time."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from slurm_plugin.records import stage_in
from slurm_plugin.records.stage_in import Request
from slurm_plugin.supervisor.guard import processes
from slurm_plugin.supervisor.staging import data_copies, dataset
from tests.unit.node.owned import give, like_tmp
from tests.waiting import HANG_S, until

NODE = {"SLURMD_NODENAME": "n1"}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """`local`, the site's directory; `source` and `notes` beside it."""
    like_tmp(tmp_path / "local")
    (tmp_path / "source").mkdir()
    (tmp_path / "source/a").write_text("one")
    (tmp_path / "notes").mkdir()
    return tmp_path


def request(place: Path, *wanted: str, run: str = "7.0") -> Request:
    """What a run asks for; without words the source under the name `set`."""
    return Request(str(place / "local"), run, str(place / "notes"), wanted or (f"set:{place}/source",))


def own(place: Path) -> Path:
    """This user's directory."""
    return place / "local" / str(os.geteuid())


def made(place: Path) -> list[Path]:
    """The copies that there are."""
    return [path for path in own(place).iterdir() if (path / "data").exists()]


def test_copied_once_and_used_again(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each run has its own names for it; the stamp tells of the last use."""
    assert data_copies.fetch(request(place), NODE) == 0
    assert (own(place) / "7.0/set/a").read_text() == "one"
    assert stage_in.variable(str(place / "local"), "7.0") == str(own(place) / "7.0")
    (one,) = made(place)
    os.utime(one / ".used", (1, 1))
    assert data_copies.fetch(request(place, f"x:{place}/source", run="8.1"), NODE) == 0
    assert made(place) == [one]
    assert (own(place) / "8.1/x").resolve() == one / "data"
    assert (one / ".used").stat().st_mtime > 1
    assert [path.stat().st_mode & 0o777 for path in (own(place), one, one / "data")] == [0o700, 0o700, 0o500]
    said = [line.partition(" (")[0] for line in capsys.readouterr().out.splitlines()]
    start = "[slurm_plugin] n1 stage-in: ok"
    assert said == [f"{start}: set: 1 files, 3 B, copied", f"{start}: x: 1 files, 3 B, there already"]


def test_any_name_that_a_spec_allows(place: Path) -> None:
    """None of them is one of ours; nor is one that a killed process has left in the way."""
    (own(place) / "7.0").mkdir(parents=True)
    own(place).chmod(0o700)
    (own(place) / f"7.0/.data.{os.getpid()}").symlink_to("/nowhere")
    names = ("used", "data", "new", f"data.{os.getpid()}")
    for _ in range(2):
        assert data_copies.fetch(request(place, *(f"{name}:{place}/source" for name in names)), NODE) == 0
        assert [(own(place) / "7.0" / name / "a").read_text() for name in names] == ["one"] * 4
    (one,) = [path for path in made(place) if path.name != "7.0"]
    assert {path.name for path in (own(place) / "7.0").iterdir()} == {*names, ".used"}
    assert {path.name for path in one.iterdir()} == {"data", ".used", ".seal"}


def test_a_source_that_was_changed_is_copied_anew(place: Path) -> None:
    """Whoever runs with the copy of before goes on with that."""
    assert data_copies.fetch(request(place), NODE) == 0
    (place / "source/a").write_text("other")
    assert data_copies.fetch(request(place, run="8.0"), NODE) == 0
    assert [(own(place) / run / "set/a").read_text() for run in ("7.0", "8.0")] == ["one", "other"]
    assert data_copies.fetch(request(place), NODE) == 0  # the next attempt of the first run
    assert (own(place) / "7.0/set/a").read_text() == "other"


def test_two_jobs_at_once_copy_once(place: Path) -> None:
    """The second waits for the first; what another left half done is no copy."""
    entries = dataset.listed(str(place / "source"))
    place_of_it = own(place) / dataset.fingerprint(str(place / "source"), entries)
    (place_of_it / "new").mkdir(parents=True)
    (place_of_it / "new/half").touch()
    own(place).chmod(0o700)
    words = ["-m", "slurm_plugin", *request(place).words()]
    fd = os.open(place_of_it, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    environ = {**os.environ, **NODE, "PYTHONPATH": str(Path(__file__).parents[3])}
    two = [subprocess.Popen([sys.executable, *words], env=environ, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    waits = [process.stdout.readline() for process in two if process.stdout]
    assert waits == [f"[slurm_plugin] n1 stage-in: set: {data_copies.WAITS}\n"] * 2
    os.close(fd)
    said = sorted(process.communicate(timeout=HANG_S)[0].partition(" (")[0].rpartition(", ")[2] for process in two)
    assert said == ["copied", "there already"]
    assert {path.name for path in place_of_it.iterdir()} == {"data", ".used", ".seal"}
    assert {path.name for path in (place_of_it / "data").iterdir()} == {"a"}


def test_a_source_that_is_not_there_is_the_jobs_own_fault(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No node says that it cannot have it."""
    assert data_copies.fetch(request(place, "x:/nowhere/x"), NODE) == 1
    said = "[slurm_plugin] n1 stage-in: failed: '/nowhere/x': No such file or directory\n"
    assert capsys.readouterr().out == said
    assert stage_in.read_notes(str(place / "notes"), ("n1",)) == {}


def test_a_disk_that_is_full_is_the_nodes_fault(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is written; another node may have room."""
    full = SimpleNamespace(f_frsize=4096, f_bavail=2, f_files=100, f_favail=50)
    monkeypatch.setattr(os, "fstatvfs", lambda _fd: full)
    assert data_copies.fetch(request(place), NODE) == 1
    (why,) = stage_in.read_notes(str(place / "notes"), ("n1", "n2")).values()
    assert why.endswith(f": 8 kB and 50 inodes are free, '{place}/source' needs 16 kB and 2")
    assert capsys.readouterr().out == f"[slurm_plugin] n1 stage-in: failed: {why}; another node may have it\n"
    assert not made(place)


def test_one_that_fails_halfway_leaves_nothing(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk has its room back, and the next job copies anew."""

    def broken(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", broken)
        assert data_copies.fetch(request(place), NODE) == 1
    assert stage_in.read_notes(str(place / "notes"), ("n1",)) == {"n1": "No space left on device"}
    assert not [path for path in own(place).rglob("*") if path.name in ("new", "data")]
    assert data_copies.fetch(request(place), NODE) == 0


@pytest.mark.parametrize("what", ["missing", "not sticky", "open", "a file"])
def test_a_place_that_is_not_as_it_has_to_be(place: Path, what: str) -> None:
    """The node says so: it is no place for anybody's data."""
    if what == "missing":
        (place / "local").rmdir()
    elif what == "not sticky":
        (place / "local").chmod(0o777)
    elif what == "open":
        own(place).mkdir()
        own(place).chmod(0o755)
    else:
        own(place).touch()
    assert data_copies.fetch(request(place), NODE) == 1
    (why,) = stage_in.read_notes(str(place / "notes"), ("n1",)).values()
    ours = "its admin: install -d -m 1777 " if what in ("missing", "not sticky") else "move it away on this node"
    assert ours in why


def test_a_name_that_somebody_else_has_taken(place: Path) -> None:
    """Is told as what it is: by whom, and when it will be gone."""
    own(place).mkdir()
    give(own(place), 20001)
    assert data_copies.fetch(request(place), NODE) == 1
    (why,) = stage_in.read_notes(str(place / "notes"), ("n1",)).values()
    assert why == f"{own(place)} is not yours: uid 20001 has made it; the prolog of the next job takes it away"


def test_notes_stand_there_before_they_are_written(tmp_path: Path) -> None:
    """A file server that was asked for one before is asked anew: it is the same file all the time."""
    notes = tmp_path / "made/by/now"
    stage_in.reset_notes(str(notes), ("n1", "n2"))
    before = {path.name: path.stat().st_ino for path in notes.iterdir()}
    assert set(before) == {"stage-in.n1", "stage-in.n2"}
    assert stage_in.read_notes(str(notes), ("n1", "n2", "n3")) == {}
    stage_in.write_note(str(notes), "n2", "no room")
    assert stage_in.read_notes(str(notes), ("n1", "n2", "n3")) == {"n2": "no room"}
    stage_in.reset_notes(str(notes), ("n1", "n2"))
    assert stage_in.read_notes(str(notes), ("n1", "n2", "n3")) == {}
    assert {path.name: path.stat().st_ino for path in notes.iterdir()} == before


def test_the_users_next_job_removes_old_copies(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where root does not. Never while another job of the user is on the node."""
    keep_s, environ = 3600.0, {**NODE, "SLURM_JOB_ID": "8"}
    assert data_copies.fetch(request(place), NODE) == 0
    (old,) = made(place)
    theirs = own(place) / "thesis"
    theirs.mkdir()
    os.utime(theirs, (1, 1))
    for each in (old, own(place) / "7.0"):
        os.utime(each / ".used", (1, 1))
    (place / "source/a").write_text("other")
    later = request(place, run="8.0")._replace(keep_s=keep_s)
    with subprocess.Popen(["/bin/sleep", "600"], env={"SLURM_JOB_ID": "9"}) as other:
        try:
            until(lambda: processes.has_other_job("8"), "the other job's process")
            assert data_copies.fetch(later, environ) == 0
            assert old.exists()
        finally:
            other.kill()
    monkeypatch.setattr(processes, "has_other_job", lambda job: job != "8")
    assert data_copies.fetch(later._replace(keep_s=0.0), environ) == 0
    assert old.exists()
    assert data_copies.fetch(later, environ) == 0
    assert not old.exists()
    assert {path.name for path in own(place).iterdir()} == {"8.0", "thesis", *(path.name for path in made(place))}
    assert (own(place) / "8.0/set/a").read_text() == "other"


def test_old_copies_make_room(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a disk full of them would fail every job of the user."""
    assert data_copies.fetch(request(place), NODE) == 0
    (old,) = made(place)
    os.utime(old / ".used", (1, 1))
    (place / "source/a").write_text("other")
    room = dataset.room
    monkeypatch.setattr(processes, "has_other_job", lambda _: False)
    monkeypatch.setattr(dataset, "room", lambda *words: 1 << 62 if old.exists() else room(*words))
    assert data_copies.fetch(request(place, run="8.0"), NODE) == 1
    assert data_copies.fetch(request(place, run="8.0")._replace(keep_s=3600.0), NODE) == 0
    assert not old.exists()
