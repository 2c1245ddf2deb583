"""Root removes old copies of data sets from the users' directories."""

import fcntl
import os
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from prechecks import files
from slurm_plugin.node import cleanup, stage_in_expiry
from slurm_plugin.records import node_directory
from tests.fake_slurm import FakeClock
from tests.unit.node.copies import ANN, BEN, DAY_S, be_patient, directory, file, give, made, site_in, there
from tests.unit.node.owned import left


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A site that keeps copies for a day, on a machine that may take its time."""
    be_patient(monkeypatch)
    return site_in(tmp_path)


def find_old(site: dict[str, Any]) -> list[tuple[int, str]]:
    """The users and names of copies that are old now, of any user."""
    with files.Opened(node_directory.open_shared(site["stage_in"]["directory"])) as shared:
        return stage_in_expiry.find_old(shared, time.time(), ())


def test_what_was_not_used_for_so_long_goes(site: dict[str, Any]) -> None:
    """The age counts from the last use; links of runs and unfinished copies are removed, too."""
    made(site, "old", 2 * DAY_S)
    made(site, "new", DAY_S / 2)
    made(site, "bobs", 2 * DAY_S, BEN)
    own = Path(site["stage_in"]["directory"]) / str(ANN)
    links = directory(own / "7.0")
    (links / "set").symlink_to("../old/data")
    give(links / "set")
    half = directory(own / "half")
    file(directory(half / "new") / "a")
    for place in (links, half):
        os.utime(place, (1, 1))
    stage_in_expiry.clean(site)
    assert there(site) == {"new"}


def test_a_site_without_it_is_not_looked_at(site: dict[str, Any]) -> None:
    """A site without `stage_in` is left alone."""
    made(site, "old", 2 * DAY_S)
    stage_in_expiry.clean({**site, "stage_in": {"directory": "", "keep_s": DAY_S}})
    assert there(site) == {"old"}


def test_who_is_here_keeps_everything(site: dict[str, Any]) -> None:
    """A user with a process or a run without epilog keeps every copy: between two steps a job has no process."""
    made(site, "old", 2 * DAY_S)
    with subprocess.Popen(["sleep", "3600"], user=ANN) as process:
        stage_in_expiry.clean(site)
        process.kill()
    assert there(site) == {"old"}
    node_directory.create(site["run_directory"], "7.0.0", uid=ANN, gid=ANN)
    stage_in_expiry.clean(site)
    assert there(site) == {"old"}
    node_directory.remove(site["run_directory"], "7.0.0")
    stage_in_expiry.clean(site)
    assert there(site) == set()


def test_one_that_is_being_copied_stays(site: dict[str, Any]) -> None:
    """A job has locked its directory; the next check removes it."""
    fd = os.open(made(site, "old", 2 * DAY_S), os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    stage_in_expiry.clean(site)
    assert left(Path(site["stage_in"]["directory"])) >= {f"{ANN}/old/data/deep/a", f"{ANN}/old/.used"}
    os.close(fd)
    stage_in_expiry.clean(site)
    assert there(site) == set()


def test_what_a_user_put_in_its_place(site: dict[str, Any], tmp_path: Path) -> None:
    """Links are not followed, and another user's directory under this name is not touched."""
    precious = directory(tmp_path / "precious")
    file(precious / "f")
    place = made(site, "old", 2 * DAY_S)
    (place / "data").rename(place / "moved")
    (place / "data").symlink_to(precious)
    own = place.parent
    (own / "link").symlink_to(precious)
    give(place / "data")
    for path in (precious, precious / "f"):
        os.utime(path, (1, 1))
    roots = directory(Path(site["stage_in"]["directory"]) / str(BEN), 0)
    file(directory(roots / "x", 0) / ".used", 0)
    os.utime(roots / "x/.used", (1, 1))
    file(precious / ".used")
    os.utime(precious / ".used", (1, 1))
    assert find_old(site) == [(ANN, "old")]
    stage_in_expiry.clean(site)
    assert left(precious) == {"f", ".used"}
    assert there(site) == {"link", "x"}


def test_a_removal_that_is_cut_off_is_gone_on_with(site: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest has lost the name of a copy and keeps its age, so the next check removes it."""
    place = made(site, "old", 2 * DAY_S)
    with monkeypatch.context() as patch:
        patch.setattr(stage_in_expiry.removal, "remove", lambda *_: 0)
        stage_in_expiry.clean(site)
    assert not (place / "data").exists()
    assert len(list(place.glob("data.*/deep/a"))) == 1
    assert time.time() - (place / ".used").stat().st_mtime > DAY_S
    stage_in_expiry.clean(site)
    assert there(site) == set()


def test_accounts_of_the_system_are_left_alone(site: dict[str, Any]) -> None:
    """Copies of system accounts stay."""
    made(site, "old", 2 * DAY_S, cleanup.FIRST_USER - 1)
    stage_in_expiry.clean(site)
    assert there(site) == {"old"}


def test_no_user_takes_all_the_time(site: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A search takes a limited number of one user's names, then the next user's, and ends at its deadline."""
    monkeypatch.setattr(stage_in_expiry, "MOST", 3)
    for number in range(10):
        made(site, f"old{number}", 2 * DAY_S)
    made(site, "bobs", 2 * DAY_S, BEN)
    users = [uid for uid, _ in find_old(site)]
    assert (users.count(ANN), users.count(BEN), len(users)) == (3, 1, 4)
    seen = {name for _ in range(200) for uid, name in find_old(site) if uid == ANN}
    assert len(seen) == 10
    clock, real = FakeClock(), stage_in_expiry._old_of
    monkeypatch.setattr(stage_in_expiry, "_old_of", lambda *words: clock.sleep(1.0) or real(*words))
    monkeypatch.setattr(stage_in_expiry, "time", SimpleNamespace(monotonic=clock.now))
    monkeypatch.setattr(stage_in_expiry, "ENOUGH_S", 0.5)
    first = {tuple({uid for uid, _ in find_old(site)}) for _ in range(50)}
    assert first == {(ANN,), (BEN,)}


def test_many_at_once(site: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """One pause for the clock serves a batch of copies."""
    for number in range(5):
        made(site, f"old{number}", 2 * DAY_S)
    pauses: list[float] = []
    real = time.sleep
    monkeypatch.setattr(stage_in_expiry.time, "sleep", lambda seconds: (pauses.append(seconds), real(seconds)))
    assert stage_in_expiry.remove_old(site["stage_in"]["directory"], time.time(), ()) == 5
    assert (len(pauses), there(site)) == (2, set())
