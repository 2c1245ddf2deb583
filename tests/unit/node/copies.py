"""Copies of data sets on a node. Their owners have no processes on this machine, except those of a test."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from prechecks import child
from slurm_plugin.node import stage_in_expiry
from tests.unit.node import owned
from tests.unit.node.owned import UNKNOWN, like_tmp
from tests.waiting import HANG_S

DAY_S = 86400.0
ANN, BEN = UNKNOWN, UNKNOWN + 1


def directory(path: Path, uid: int = ANN) -> Path:
    """Make a directory, by default Ann's."""
    return owned.directory(path, uid)


def file(path: Path, uid: int = ANN) -> Path:
    """Make a file, by default Ann's."""
    return owned.file(path, uid)


def give(path: Path) -> Path:
    """Make Ann the owner of a path."""
    return owned.give(path, ANN)


def site_in(path: Path) -> dict[str, Any]:
    """Return a site that keeps copies for a day."""
    like_tmp(path / "local")
    return {
        "stage_in": {"directory": str(path / "local"), "keep_s": DAY_S},
        "run_directory": str(path / "run"),
        "prechecks": {"state": str(path / "run/state")},
    }


def be_patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise the deadlines of searches, removals and reaping to HANG_S, for a busy machine."""
    for module, name in (
        (stage_in_expiry, "REMOVE_S"),
        (stage_in_expiry, "ENOUGH_S"),
        (child, "REAP_S"),
    ):
        monkeypatch.setattr(module, name, HANG_S)


def made(site: dict[str, Any], name: str, age_s: float, uid: int = ANN) -> Path:
    """Make a user's copy that was last used `age_s` seconds ago."""
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
    """Return the names of all users' copies that are left."""
    return {path.name for path in Path(site["stage_in"]["directory"]).glob("*/*")}
