"""Mirrors slurm_plugin/hooks/datasets.py: copies that nobody uses go, as root, from a place where users may write."""

import fcntl
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.hooks import cleanup, datasets
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
    return {"stage_in": {"directory": str(tmp_path / "local"), "keep_s": DAY_S}, "run_directory": str(tmp_path / "run")}


def made(site: dict[str, Any], name: str, age_s: float, uid: int = ANN) -> Path:
    """A copy of a user's that was last used so long ago."""
    own = Path(site["stage_in"]["directory"]) / str(uid)
    if not own.exists():
        directory(own, uid).chmod(0o700)
    place = directory(own / name, uid)
    deep = directory(directory(place / "data", uid) / "deep", uid)
    file(deep / "a", uid).chmod(0o400)
    deep.chmod(0o500)
    used = file(place / "used", uid)
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
    assert left(Path(site["stage_in"]["directory"])) >= {f"{ANN}/old/data/deep/a", f"{ANN}/old/used"}
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
    file(directory(roots / "x", 0) / "used", 0)
    os.utime(roots / "x/used", (1, 1))
    datasets.clean(site)
    assert left(precious) == {"f"}
    assert there(site) == {"link", "x"}


def test_a_removal_that_is_cut_off_is_gone_on_with(site: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left has no name of a copy, and is as old as before."""
    place = made(site, "old", 2 * DAY_S)
    with monkeypatch.context() as patch:
        patch.setattr(datasets.removal, "remove", lambda *_: 0)
        datasets.clean(site)
    assert not (place / "data").exists()
    assert len(list(place.glob("data.*/deep/a"))) == 1
    assert time.time() - (place / "used").stat().st_mtime > DAY_S
    datasets.clean(site)
    assert there(site) == set()


def test_accounts_of_the_system_are_left_alone(site: dict[str, Any]) -> None:
    """As everywhere."""
    made(site, "old", 2 * DAY_S, cleanup.FIRST_USER - 1)
    datasets.clean(site)
    assert there(site) == {"old"}
