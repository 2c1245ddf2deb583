"""One user's FUSE mount, which refuses root or never answers: everything else is cleaned."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.node import cleanup, disk_room, stage_in_expiry
from slurm_plugin.records import node_directory
from tests.fakes import FakeSlurm, job
from tests.unit.node import copies, fuse
from tests.unit.node.copies import ANN, BEN, DAY_S
from tests.unit.node.owned import directory, file, left, like_tmp, remove
from tests.waiting import HANG_S

HANG_NS = int(HANG_S * 1e9)

# Refused to root, and asked but never answered.
KINDS = pytest.mark.parametrize("options", ["", ",allow_other"], ids=["refused", "silent"])


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A site with a directory to clean and a place for copies, on a machine that may take its time."""
    copies.be_patient(monkeypatch)
    for name in ("LOOK_S", "REMOVE_S"):
        monkeypatch.setattr(cleanup, name, HANG_S)
    monkeypatch.setattr(disk_room, "CLEAN_S", HANG_S)
    whole = copies.site_in(tmp_path)
    return {**whole, "clean": [str(like_tmp(tmp_path / "shm"))], "spool_directory": "/nonexistent"}


@KINDS
def test_behind_a_job(site: dict[str, Any], options: str) -> None:
    """Another user's files are removed."""
    (shm,) = map(Path, site["clean"])
    mine = directory(shm / "bens", BEN)
    file(shm / "f", ANN)
    door = FakeSlurm([job(7, state="COMPLETING", nodes="n1")])
    door.users = {ANN: "alice"}
    time.sleep(0.02)  # the clock of the file's stamp has gone on
    with fuse.mounted(mine, uid=BEN, options=options):
        cleanup.after_job(site, 7, {"SLURM_JOB_UID": str(ANN), "SLURMD_NODENAME": "n1"}, lambda: door)
    assert left(shm) == {"bens"}


@KINDS
def test_among_what_is_removed(tmp_path: Path, options: str) -> None:
    """The rest of the same user's tree is removed."""
    shared = like_tmp(tmp_path / "shared")
    deep = directory(directory(shared / "a", ANN) / "b", ANN)
    file(deep / "f", ANN)
    point = directory(deep / "point", ANN)
    with fuse.mounted(point, uid=ANN, options=options):
        assert remove(shared, ANN) == 1
    assert left(shared) == {"a", "a/b", "a/b/point"}


@KINDS
def test_among_copies(site: dict[str, Any], options: str) -> None:
    """Old copies of all users are removed: one has a mount in place of all of hers, another on one of hers."""
    local = Path(site["stage_in"]["directory"])
    for name in ("a", "b", "c"):
        copies.made(site, name, 2 * DAY_S)
    copies.made(site, "bens", 2 * DAY_S, BEN)
    all_of_bens, one_of_anns = local / str(BEN), local / str(ANN) / "b"
    with fuse.mounted(all_of_bens, uid=BEN, options=options), fuse.mounted(one_of_anns, uid=ANN, options=options):
        stage_in_expiry.clean(site)
    assert copies.there(site) == {"b", "bens"}


@KINDS
def test_before_a_node_is_drained(site: dict[str, Any], options: str) -> None:
    """The other files make room."""
    (shm,) = map(Path, site["clean"])
    bens = directory(shm / "bens", BEN)
    file(shm / "f", ANN)
    with fuse.mounted(bens, uid=BEN, options=options):
        assert disk_room._clean(site, [str(shm)], time.time_ns() + HANG_NS, time.time()) == 1
    assert left(shm) == {"bens"}


@KINDS
def test_over_a_run_s_own_directory(site: dict[str, Any], options: str) -> None:
    """Other users' old directories of runs and old copies are removed."""
    run = site["run_directory"]
    for name, uid in (("7.0.0", BEN), ("8.0.0", ANN)):
        node_directory.create(run, name, uid=uid, gid=uid)
        os.utime(f"{run}/jobs/{name}", (1, 1))
    copies.made(site, "old", 2 * DAY_S)
    with fuse.mounted(Path(run, "jobs/7.0.0/user"), uid=BEN, options=options):
        assert cleanup.sweep_runs(site, "n1", FakeSlurm) == ["7.0.0", "8.0.0"]
        assert node_directory.all_runs(run) == []
        stage_in_expiry.clean(site)
    assert copies.there(site) == set()
