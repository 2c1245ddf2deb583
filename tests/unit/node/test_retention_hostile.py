"""Root cleans users' directories: links, other owners, mounts, swaps and odd names lead nowhere."""

import os
import subprocess
from pathlib import Path

import pytest

from slurm_plugin.node import retention
from slurm_plugin.records import job_directory, log_files
from tests.fakes import FakeSlurm
from tests.unit.node import fuse
from tests.unit.node.old_jobs import age, clean, jobs, made
from tests.unit.node.owned import ALICE, BOB, directory, file, give, left
from tests.waiting import HANG_S


@pytest.fixture
def home(place: Path) -> Path:
    """Alice's directory."""
    return directory(place / "alice")


@pytest.fixture
def bobs(place: Path) -> Path:
    """Bob's directory, with an old job's."""
    found = directory(place / "bob", BOB)
    made(found, 7, BOB)
    return found


def test_links(home: Path, bobs: Path) -> None:
    """A link in any place leads nowhere: as the top, as a directory, as a job's, as a record, as a log's directory."""
    before = left(bobs)
    link(home / "a", bobs)
    link(directory(home / "b") / ".slurm_plugin", bobs / ".slurm_plugin")
    link(directory(directory(home / "c") / ".slurm_plugin") / "7", bobs / ".slurm_plugin" / "7")
    own = made(directory(home / "d"), 8, ALICE)
    link(own / "turn", bobs / ".slurm_plugin" / "7" / "output.json")
    link(own / "requests" / "2", bobs / "logs")
    age(own, 40, ALICE)
    with pytest.raises(OSError):
        clean(home / "a")
    assert jobs(clean(home)) == [8]
    assert left(bobs) == before
    assert not own.exists()


def link(path: Path, target: Path) -> None:
    path.symlink_to(target)
    give(path)


@pytest.mark.parametrize("name", ["/\ud800", "/a\0b", "/" + "x" * 5000, "/a\udcff"])
def test_a_log_directory_that_cannot_be(home: Path, bobs: Path, name: str) -> None:
    """A user who records it does not stop the cleaning of all others."""
    own = made(home, 8, ALICE)
    log_files.write_output(own, log_files.Output("train", "", "", name, "both"))
    age(own, 40, ALICE)
    assert jobs(clean(home.parent, below=True)) == [7, 8]


@pytest.mark.parametrize("which", ["directory", "log", "record"])
def test_another_users_files(home: Path, bobs: Path, which: str) -> None:
    """A user's record that names another user's logs removes none; hard links and files of others stay."""
    own = made(home, 7, ALICE)
    if which == "directory":
        log_files.write_output(own, log_files.Output("train", "", "", str(bobs / "logs"), "both"))
    elif which == "log":
        os.link(bobs / "logs" / "train-7-worker-0.log", home / "logs" / "train-7-worker-5.log")
    else:
        os.link(bobs / ".slurm_plugin" / "7" / "attempts.jsonl", own / "turn")
    age(own, 40, ALICE) if which == "directory" else None
    before = left(bobs)
    clean(home)
    assert left(bobs) == before
    assert {"log": home / "logs" / "train-7-worker-5.log", "record": own / "turn"}.get(which, home).exists()


def test_logs_where_the_user_may_not_write(home: Path, place: Path) -> None:
    """The user's own files in a directory that only root or root's group may change stay: rights are the user's."""
    roots = place / "roots"
    roots.mkdir()
    roots.chmod(0o775)
    own = made(home, 7, ALICE)
    file(roots / "train-7-worker-0.log")
    log_files.write_output(own, log_files.Output("train", "", "", str(roots), "node"))
    age(own, 40, ALICE, roots / "train-7-worker-0.log")
    assert jobs(clean(home)) == [7]
    assert left(roots) == {"train-7-worker-0.log"}


def test_rights_are_given_back(home: Path) -> None:
    """After the cleaning this process is root again, with its groups."""
    before = (os.geteuid(), os.getegid(), os.getgroups())
    made(home, 7, ALICE)
    clean(home)
    assert (os.geteuid(), os.getegid(), os.getgroups()) == before


def test_a_directory_that_changes_meanwhile(home: Path, bobs: Path) -> None:
    """A user who swaps the working directory for a link to another user's, after the search, gains nothing."""
    work = directory(home / "work")
    made(work, 7, ALICE)

    class Swapping(FakeSlurm):
        def jobs(self, job_ids: object = None) -> dict[int, object]:  # type: ignore[override]
            work.rename(home / "away")
            link(work, bobs)
            return {}

    before = left(bobs)
    assert jobs(clean(home, Swapping())) == []
    assert left(bobs) == before
    assert (home / "away" / ".slurm_plugin" / "7").exists()


def test_swapped_for_another_users(home: Path, bobs: Path) -> None:
    """A directory of another owner in the place of the one that was found is left alone."""
    work = directory(home / "work")
    own = made(work, 7, ALICE)

    class Swapping(FakeSlurm):
        def jobs(self, job_ids: object = None) -> dict[int, object]:  # type: ignore[override]
            own.rename(home / "away")
            (bobs / ".slurm_plugin" / "7").rename(own)
            return {}

    assert jobs(clean(home, Swapping())) == []
    assert (own / "output.json").exists()


def test_odd_files(home: Path) -> None:
    """Pipes, sockets, huge and odd records, odd names: nothing blocks, and what has our name is removed."""
    own = made(home, 7, ALICE)
    (own / "turn").unlink(missing_ok=True)
    os.mkfifo(own / "turn")
    (own / job_directory.ATTEMPTS).unlink()
    os.mkfifo(own / job_directory.ATTEMPTS)
    (own / log_files.FILE).write_text('{"directory": "relative", "name": 7}')
    file(own / "stage-in.n1\n\x1b[2J")
    deep = own / "requests"
    for _ in range(60):
        deep = deep / "d"
    deep.mkdir(parents=True)
    closed = own / "requests" / "closed"
    closed.mkdir()
    age(own, 40, ALICE)
    closed.chmod(0)
    found = clean(home)
    assert jobs(found) == [7]
    assert not own.exists()


def test_names_that_are_no_text(home: Path) -> None:
    """A directory whose name is not UTF-8 or has control characters is searched and shown without them."""
    odd = os.fsencode(home) + b"/\xff\x1b[2J"
    os.mkdir(odd)  # noqa: PTH102
    os.chown(odd, ALICE, ALICE)
    made(Path(os.fsdecode(odd)), 7, ALICE)
    (found,) = clean(home)["jobs"]
    assert found["directory"] == f"{home}/??[2J/.slurm_plugin/7"


def test_a_mount_is_not_entered(home: Path) -> None:
    """Another file system below the directory is not searched."""
    mount = directory(home / "mount")
    subprocess.run(["mount", "-t", "tmpfs", "none", mount], check=True)
    try:
        made(mount, 7, ALICE)
        assert jobs(clean(home)) == []
        assert (mount / ".slurm_plugin" / "7").is_dir()
    finally:
        subprocess.run(["umount", mount], check=True)


def test_logs_on_a_mount_that_hangs(home: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their job is kept, and the others are removed: the directory is asked once, for a limited time."""
    hung = place / "hung"
    hung.mkdir()
    for job_id in (7, 8):
        own = made(home, job_id, ALICE)
        log_files.write_output(own, log_files.Output("train", "", "", str(hung), "both"))
        age(own, 40, ALICE)
    made(home, 9, ALICE)
    with fuse.mounted(hung, uid=ALICE, options=",allow_other"):
        monkeypatch.setattr(retention, "ANSWER_S", 0.01)
        assert not retention._answers(str(hung))
        monkeypatch.setattr(retention, "ANSWER_S", HANG_S)
        assert jobs(clean(home)) == [9]
    assert {"7", "8"} <= {path.name for path in (home / ".slurm_plugin").iterdir()}


def test_system_accounts(place: Path) -> None:
    """Root's and system accounts' jobs stay."""
    for uid in (0, 100):
        made(directory(place / str(uid), uid), 7, uid)
    assert jobs(clean(place)) == []


def test_a_user_without_a_name() -> None:
    """A user that the machine does not know gets no groups."""
    before = os.getgroups()
    with retention._rights_of(54321):
        assert (os.geteuid(), os.getgroups()) == (54321, [])
    assert os.getgroups() == before
