"""Disk space: who uses the node, what is removed before a drain, and what is kept."""

import time
from pathlib import Path
from typing import Any

import pytest

import prechecks
from prechecks import FAILED, JOB_PROBLEM, NODE_PROBLEM, OK, Context, Verdict
from slurm_plugin.node import cleanup, disk_room
from tests.fakes import FakeSlurm, node
from tests.unit.node import copies
from tests.unit.node.copies import ANN, BEN, DAY_S
from tests.unit.node.owned import file, left, like_tmp
from tests.waiting import HANG_S, until

CONTEXT = Context("periodic", "n1")
FULL = Verdict("disk-size.shm", FAILED, NODE_PROBLEM, "1 MB < 1 GB")
FREE = FULL._replace(verdict=OK)
OTHER = Verdict("gpu-check", FAILED, NODE_PROBLEM, "3 of 4 GPUs")


class Place:
    """A node without jobs and users, whose space is checked again."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.site: dict[str, Any] = copies.site_in(directory)
        self.site["clean"] = [str(like_tmp(directory / "shm"))]
        self.site["spool_directory"] = str(directory / "spool")
        self.site["prechecks"] |= {"disk-size": {"paths": []}}
        self.shm = directory / "shm"
        self.door = FakeSlurm(nodes=[node("n1")])
        self.users: set[int] = {0, 33}
        self.again: list[list[str]] = []
        self.found = FREE
        monkeypatch.setattr(cleanup, "users_of_processes", lambda: self.users)
        monkeypatch.setattr(prechecks, "run", self.run)
        monkeypatch.setattr(disk_room, "ITEMS", {"disk-size.shm": str(self.shm)})
        monkeypatch.setattr(disk_room, "CLEAN_S", HANG_S)
        copies.be_patient(monkeypatch)

    def run(self, _context: object, _settings: object, *, items: list[str]) -> tuple[Verdict, ...]:
        self.again.append(items)
        return (self.found,)

    def made(self, *verdicts: Verdict) -> tuple[Verdict, ...]:
        now = time.time_ns()  # Linux 6.13 and later stamp some changes with this clock, which is ahead of the other
        until(lambda: time.clock_gettime_ns(cleanup.STAMPS) > now)  # what is there is older than the question
        return disk_room.make_room(self.site, CONTEXT, verdicts, lambda: self.door)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    return Place(tmp_path, monkeypatch)


def test_nothing_lacks_room(place: Place) -> None:
    """Slurm is not asked, and nothing is removed."""
    file(place.shm / "a", ANN)
    found = (OTHER, FREE, FULL._replace(problem=JOB_PROBLEM))
    assert place.made(*found) == found
    assert (place.door.questions, left(place.shm)) == ([], {"a"})


@pytest.mark.parametrize("state", ["ALLOCATED", "MIXED", "COMPLETING", "UNKNOWN"])
def test_a_job_is_here(place: Place, state: str) -> None:
    """The node is not drained, nothing is removed, and failures of other items stay as they are."""
    file(place.shm / "a", ANN)
    place.door.known_nodes["n1"] = node("n1", "IDLE", state)
    assert place.made(FULL, OTHER) == (FULL._replace(problem=JOB_PROBLEM), OTHER)
    assert left(place.shm) == {"a"}


def test_slurm_does_not_answer(place: Place) -> None:
    """Without an answer a job may be on the node."""
    place.door.refusals["nodes", None] = 1
    assert place.made(FULL)[0].problem == JOB_PROBLEM


@pytest.mark.parametrize("again", [FREE, FULL])
def test_a_user_s_process_is_here(place: Place, again: Verdict) -> None:
    """It prevents a drain, as a job does. Leftovers of other users are removed; files of its own user are kept."""
    place.users |= {ANN}
    place.found = again
    for name, uid in (("a", ANN), ("b", BEN)):
        file(place.shm / name, uid)
    assert place.made(FULL) == (FREE if again is FREE else FULL._replace(problem=JOB_PROBLEM),)
    assert left(place.shm) == {"a"}
    for name, uid in (("anns", ANN), ("bens", BEN)):
        copies.made(place.site, name, 2 * DAY_S, uid)
    assert place.made(FULL) == (FREE if again is FREE else FULL._replace(problem=JOB_PROBLEM),)
    assert copies.there(place.site) == {"anns"}


def test_a_run_that_no_epilog_has_ended(place: Place) -> None:
    """The directory of a run on a node that died hides no fault: Slurm says whether a job is here."""
    Path(place.site["run_directory"], "jobs/7.0.0").mkdir(parents=True)
    assert place.made(FULL) == (FULL,)


def test_what_users_left_goes_first(place: Place) -> None:
    """Root's files stay; the item is checked again after the removal."""
    for name, uid in (("a", ANN), ("b", BEN), ("of-root", 0)):
        file(place.shm / name, uid)
    assert place.made(OTHER, FULL) == (OTHER, FREE)
    assert (left(place.shm), place.again) == ({"of-root"}, [["disk-size.shm"]])


def test_copies_go_the_oldest_first(place: Place) -> None:
    """One check removes copies of one age, and none where other files made room."""
    for name, age_s in (("old", 0.7 * DAY_S), ("newer", 0.2 * DAY_S), ("new", 60.0)):
        copies.made(place.site, name, age_s)
    file(place.shm / "a", ANN)
    gone = []
    for _ in range(4):
        before = copies.there(place.site)
        place.made(FULL)
        gone.append(before - copies.there(place.site))
    assert gone == [set(), {"old"}, {"newer"}, {"new"}]


def test_nothing_can_go(place: Place) -> None:
    """The node is drained."""
    assert place.made(FULL) == (FULL,)
    assert place.again == []


def test_another_file_system_is_not_cleaned(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full root directory removes no files in memory."""
    file(place.shm / "a", ANN)
    monkeypatch.setattr(disk_room, "ITEMS", {"disk-size.shm": "/proc"})
    assert place.made(FULL) == (FULL,)
    assert left(place.shm) == {"a"}


def test_every_item_that_lacks_room_has_a_place() -> None:
    """Its own path, or those in the site file."""
    assert {item for item, path in disk_room.ITEMS.items() if not path} == {"disk-size.paths", "inodes.paths"}
    site = {"prechecks": {"disk-size": {"paths": [("/scratch", 1)]}}}
    assert disk_room._paths(site, ["disk-size.root", "inodes.root", "inodes.paths"]) == ["/", "/scratch"]
