"""Mirrors slurm_plugin/hooks/datasets.py and outdated.py: copies that nobody uses go, by root, below users' names."""

import fcntl
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from prechecks import behind
from slurm_plugin.hooks import cleanup, datasets, outdated
from tests.unit.hooks import owned
from tests.unit.hooks.owned import left, like_tmp

DAY_S = 86400.0
ANN, BEN = 29417, 29418  # who have no process on this machine, whatever else runs there


def directory(path: Path, uid: int = ANN) -> Path:
    """A directory of hers."""
    return owned.directory(path, uid)


def file(path: Path, uid: int = ANN) -> Path:
    """A file of hers."""
    return owned.file(path, uid)


def give(path: Path) -> Path:
    """Make her its owner."""
    return owned.give(path, ANN)


@pytest.fixture
def site(tmp_path: Path) -> dict[str, Any]:
    """A site that keeps copies for a day."""
    like_tmp(tmp_path / "local")
    return {
        "stage_in": {"directory": str(tmp_path / "local"), "keep_s": DAY_S},
        "run_directory": str(tmp_path / "run"),
        "prechecks": {"state": str(tmp_path / "run/state")},
    }


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the node's log is told."""
    lines: list[str] = []
    monkeypatch.setattr(datasets.syslog, "syslog", lambda *words: lines.append(words[-1]))
    return lines


def made(site: dict[str, Any], name: str, age_s: float, uid: int = ANN) -> Path:
    """A copy of a user's that was last used so long ago."""
    own = Path(site["stage_in"]["directory"]) / str(uid)
    if not own.exists():
        directory(own, uid).chmod(0o700)
    place = directory(own / name, uid)
    deep = directory(directory(place / "data", uid) / "deep", uid)
    file(deep / "a", uid).chmod(0o400)
    deep.chmod(0o500)
    used = file(place / ".used", uid)
    os.utime(used, (time.time() - age_s,) * 2)
    return place


def there(site: dict[str, Any]) -> set[str]:
    """The copies that are left, of all users."""
    return {path.name for path in Path(site["stage_in"]["directory"]).glob("*/*")}


def test_what_was_not_used_for_so_long_goes(site: dict[str, Any]) -> None:
    """Counted from the last use; a run's links too, and a copy that nobody came to the end of."""
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
    datasets.clean(site)
    assert there(site) == {"new"}


def test_a_site_without_it_is_not_looked_at(site: dict[str, Any]) -> None:
    """Nor one whose settings were compiled before there was such a key."""
    made(site, "old", 2 * DAY_S)
    datasets.clean({**site, "stage_in": {"directory": "", "keep_s": DAY_S}})
    datasets.clean({"run_directory": site["run_directory"]})
    assert there(site) == {"old"}


def test_who_is_here_keeps_everything(site: dict[str, Any], tmp_path: Path) -> None:
    """By a process, or by a run that no epilog has ended: a job between two steps has no process."""
    made(site, "old", 2 * DAY_S)
    with subprocess.Popen(["sleep", "60"], user=ANN) as process:
        datasets.clean(site)
        process.kill()
    assert there(site) == {"old"}
    run = tmp_path / "run/jobs/7.0.0/user"
    run.mkdir(parents=True)
    give(run)
    datasets.clean(site)
    assert there(site) == {"old"}
    run.rmdir()
    datasets.clean(site)
    assert there(site) == set()


def test_one_that_is_being_copied_stays(site: dict[str, Any]) -> None:
    """Its directory is held; the next look has it."""
    fd = os.open(made(site, "old", 2 * DAY_S), os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    datasets.clean(site)
    assert left(Path(site["stage_in"]["directory"])) >= {f"{ANN}/old/data/deep/a", f"{ANN}/old/.used"}
    os.close(fd)
    datasets.clean(site)
    assert there(site) == set()


def test_what_a_user_put_in_its_place(site: dict[str, Any], tmp_path: Path) -> None:
    """Links lead nowhere, and another user's directory under this name is not touched."""
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
    assert outdated.look(site["stage_in"]["directory"], time.time(), ())["old"] == {str(ANN): ["old"]}
    datasets.clean(site)
    assert left(precious) == {"f", ".used"}
    assert there(site) == {"link", "x"}


def test_a_removal_that_is_cut_off_is_gone_on_with(site: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left has no name of a copy, and is as old as before."""
    place = made(site, "old", 2 * DAY_S)
    with monkeypatch.context() as patch:
        patch.setattr(outdated.removal, "remove", lambda *_: 0)
        datasets.clean(site)
    assert not (place / "data").exists()
    assert len(list(place.glob("data.*/deep/a"))) == 1
    assert time.time() - (place / ".used").stat().st_mtime > DAY_S
    datasets.clean(site)
    assert there(site) == set()


def test_accounts_of_the_system_are_left_alone(site: dict[str, Any]) -> None:
    """As everywhere."""
    made(site, "old", 2 * DAY_S, cleanup.FIRST_USER - 1)
    datasets.clean(site)
    assert there(site) == {"old"}


def test_no_user_takes_all_the_time(site: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """As many of one's names as fit into a look, then the next user's; the time over, what was found is the answer."""
    monkeypatch.setattr(outdated, "MOST", 3)
    for number in range(10):
        made(site, f"old{number}", 2 * DAY_S)
    made(site, "bobs", 2 * DAY_S, BEN)
    directory = site["stage_in"]["directory"]
    old = outdated.look(directory, time.time(), ())["old"]
    assert {uid: len(names) for uid, names in old.items()} == {str(ANN): 3, str(BEN): 1}
    seen = {name for _ in range(200) for name in outdated.look(directory, time.time(), ())["old"][str(ANN)]}
    assert len(seen) == 10
    real = outdated._old_of
    monkeypatch.setattr(outdated, "_old_of", lambda *words: time.sleep(0.15) or real(*words))
    monkeypatch.setattr(outdated, "ENOUGH_S", 0.1)
    first = {(*outdated.look(directory, time.time(), ())["old"],) for _ in range(20)}
    assert first - {()} == {(str(ANN),), (str(BEN),)}  # on a busy machine no time may be left for the first


def test_many_at_once(site: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A pause for the clock is made once for a batch of them."""
    for number in range(5):
        made(site, f"old{number}", 2 * DAY_S)
    directory, found = site["stage_in"]["directory"], {str(ANN): [f"old{number}" for number in range(5)]}
    pauses: list[float] = []
    real = time.sleep
    monkeypatch.setattr(outdated.time, "sleep", lambda seconds: (pauses.append(seconds), real(seconds)))
    assert outdated.remove(directory, found, time.time()) == 5
    assert (len(pauses), there(site)) == (2, set())


def test_users_who_are_gone_meanwhile(site: dict[str, Any]) -> None:
    """The others' copies are removed all the same."""
    made(site, "bobs", 2 * DAY_S, BEN)
    found = {str(ANN): ["old"], str(BEN): ["bobs"]}
    assert outdated.remove(site["stage_in"]["directory"], found, time.time()) == 1
    assert there(site) == set()


@pytest.mark.parametrize("what", ["file", "link", "directory", "full"])
def test_what_stands_under_another_users_name(site: dict[str, Any], tmp_path: Path, log: list[str], what: str) -> None:
    """Is moved out of the way, and who has made it is told; what has nothing in it is gone, nothing else is removed."""
    place = Path(site["stage_in"]["directory"])
    squatted = place / str(BEN)
    precious = directory(tmp_path / "precious", BEN)
    if what == "file":
        file(squatted)
    elif what == "link":
        squatted.symlink_to(precious)
        give(squatted)
    else:
        directory(squatted)
    if what == "full":
        file(squatted / "mine")
    file(place / "note")
    made(site, "new", 0)
    datasets.clean(site)
    assert not os.path.lexists(squatted)
    assert log == [
        f"{place}: uid {ANN} had made what other users' copies are to stand in: {BEN}; moved out of the way",
    ]
    kept = {path.name.rpartition(".")[0] for path in place.iterdir()} - {""}
    assert kept == ({f".{BEN}"} if what == "full" else set())
    assert len(list(place.glob(".*/mine"))) == (what == "full")
    assert there(site) >= {"new"}
    assert (place / "note").exists()
    assert precious.exists()


def test_the_users_own_is_never_moved(site: dict[str, Any]) -> None:
    """Also where it has taken the place of somebody else's just now, and one of root's is its admin's."""
    place = Path(site["stage_in"]["directory"])
    own = made(site, "new", 0).parent
    fd = os.open(place, os.O_RDONLY)
    assert not outdated._moved(fd, str(ANN), BEN)
    os.close(fd)
    directory(place / str(BEN), 0)
    datasets.clean(site)
    assert {path.name for path in place.iterdir()} == {own.name, str(BEN)}


def test_a_look_that_hangs_is_the_only_one(
    site: dict[str, Any], log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whom no signal ends is not followed by another one; once that one is gone, everything goes on."""
    made(site, "old", 2 * DAY_S)
    where = site["stage_in"]["directory"]
    left_behind: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(outdated, "look", lambda *_: time.sleep(60))
        patch.setattr(datasets, "LOOK_S", 0.1)
        patch.setattr(cleanup.Child, "kill", lambda child: left_behind.append(child.pid))  # it takes no effect there
        datasets.clean(site)
        datasets.clean(site)
    (pid,) = left_behind
    name = Path("/proc/self/comm").read_text(encoding="ascii").strip()
    assert log == [
        f"look for old copies in {where}: not done after 0.1 s",
        f"look for old copies in {where}: {name} (process {pid}) of a look before hangs there still",
    ]
    os.kill(pid, signal.SIGKILL)
    while behind.there(site["prechecks"]["state"]):
        time.sleep(0.01)
    datasets.clean(site)
    assert there(site) == set()
    os.waitpid(pid, 0)


@pytest.mark.parametrize("late", [True, False])
def test_what_failed_is_told_from_what_is_late(
    site: dict[str, Any], log: list[str], monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    """An admin looks elsewhere for each."""

    def slow(*_: object) -> int:
        time.sleep(60)
        return 0

    def broken(*_: object) -> int:
        raise OSError(5, "Input/output error")

    made(site, "old", 2 * DAY_S)
    monkeypatch.setattr(datasets, "REMOVE_S", 0.1 if late else 5.0)
    monkeypatch.setattr(outdated, "remove", slow if late else broken)
    datasets.clean(site)
    why = "not done after 0.1 s" if late else "[Errno 5] Input/output error"
    assert log == [f"remove old copies in {site['stage_in']['directory']}: {why}"]
