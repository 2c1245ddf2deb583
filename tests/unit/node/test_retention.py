"""The removal of old jobs' records and logs: which jobs, which files, and how much room it gives."""

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from slurm_plugin.node import retention
from slurm_plugin.records import job_directory
from tests.fakes import FakeSlurm, job
from tests.unit.node.old_jobs import DAY_S, NOW, age, clean, jobs, made
from tests.unit.node.owned import ALICE, BOB, directory, file, left


@pytest.fixture
def home(place: Path) -> Path:
    """A user's directory with a working directory."""
    return directory(place / "alice")


@pytest.fixture
def work(home: Path) -> Path:
    return directory(home / "work")


def test_an_old_job(work: Path, home: Path) -> None:
    """Its directory and the logs of its nodes and ranks go, of every attempt. Other files and other jobs' stay."""
    made(work, 7, ALICE)
    made(work, 8, ALICE, days=20)
    for name in ("out", "model.pt", "logs/other.log", "logs/train-7.log", "logs/other-7-worker-0.log"):
        file(work / name)
    file(work / ".slurm_plugin" / "notes")
    directory(work / ".slurm_plugin" / "checkpoints")
    found = clean(home)
    assert (jobs(found), found["kept"], found["complete"]) == ([7], [], True)
    assert found["jobs"][0]["directory"] == f"{work}/.slurm_plugin/7"
    assert found["jobs"][0]["bytes"] >= 10_000
    names = left(work)
    assert not {name for name in names if "7" in name} - {"logs/train-7.log", "logs/other-7-worker-0.log"}
    assert {"out", "model.pt", "logs/other.log", ".slurm_plugin/notes", ".slurm_plugin/checkpoints"} <= names
    assert ".slurm_plugin/8/output.json" in names
    assert jobs(clean(home)) == []


def test_a_dry_run(work: Path, home: Path) -> None:
    """Nothing is removed, and the room is told."""
    made(work, 7, ALICE)
    before = left(work)
    found = clean(home, remove=False)
    assert (jobs(found), left(work)) == ([7], before)
    assert found["jobs"][0]["bytes"] == clean(home)["jobs"][0]["bytes"]


@pytest.mark.parametrize(
    ("state", "ended_days_ago", "goes"),
    [
        ("PENDING", None, False),
        ("RUNNING", 0, False),
        ("COMPLETING", 40, False),
        ("REQUEUE_HOLD", None, False),
        ("SUSPENDED", 0, False),
        ("UNKNOWN", 40, False),
        ("COMPLETED", 1, False),
        ("FAILED", None, False),
        ("FAILED", 40, True),
        ("CANCELLED", 40, True),
    ],
)
def test_what_slurm_knows(work: Path, home: Path, state: str, ended_days_ago: float | None, goes: bool) -> None:
    """Only jobs that have ended so long ago, or that Slurm has forgotten."""
    made(work, 7, ALICE)
    ended = None if ended_days_ago is None else datetime.fromtimestamp(NOW - ended_days_ago * DAY_S, UTC)
    found = clean(home, FakeSlurm([job(state=state, end_time=ended)]))
    assert (jobs(found), len(found["kept"])) == (([7], 0) if goes else ([], 1))


def test_slurm_does_not_answer(work: Path, home: Path) -> None:
    """Nothing is removed."""
    made(work, 7, ALICE)
    before, slurm = left(work), FakeSlurm()
    slurm.refusals["jobs", None] = 1
    assert clean(home, slurm) == {"away": "jobs was refused"}
    assert left(work) == before


@pytest.mark.parametrize("where", [job_directory.ATTEMPTS, job_directory.TURN])
def test_another_cluster(work: Path, home: Path, where: str) -> None:
    """Another cluster's job with this number may run: it is kept."""
    own = made(work, 7, ALICE, cluster="there" if where == job_directory.ATTEMPTS else "")
    if where == job_directory.TURN:
        (own / where).write_text("0 0 there\n")
        age(own, 40, ALICE)
    found = clean(home)
    assert (jobs(found), found["foreign"]) == ([], [str(own)])


def test_a_file_that_is_not_ours(work: Path, home: Path) -> None:
    """It stays in the job's directory, with the directory."""
    own = made(work, 7, ALICE)
    file(directory(own / "ckpt") / "model.pt")
    age(own, 40, ALICE)
    assert jobs(clean(home)) == [7]
    assert left(own) == {"ckpt", "ckpt/model.pt"}


def test_a_job_that_starts_after_the_answer(work: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is newer than the question to Slurm stays."""
    own = made(work, 7, ALICE)

    class Slow(FakeSlurm):
        def jobs(self, job_ids: object = None) -> dict[int, object]:  # type: ignore[override]
            file(own / "turn")
            return {}

    assert jobs(clean(home, Slow())) == [7]
    assert left(own) == {"turn"}


def test_where_is_searched(home: Path) -> None:
    """At any depth, but not in hidden directories; names that are no job's are left alone."""
    deep = home
    for number in range(5):
        deep = directory(deep / f"level{number}")
    made(deep, 7, ALICE)
    made(directory(home / ".cache"), 8, ALICE)
    for name in ("x", "-1", "0", "07", "9" * 11, "٧"):
        age(directory(deep / ".slurm_plugin" / name), 40, ALICE)
    assert jobs(clean(home)) == [7]
    assert len(left(deep / ".slurm_plugin")) == 6


def test_a_search_that_takes_too_long(work: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was found so far is removed, and it is told that there may be more."""
    made(work, 7, ALICE)
    monkeypatch.setattr(retention, "SEARCH_S", 0.0)
    assert clean(home)["complete"] is False


def test_one_user(place: Path) -> None:
    """With an owner only that user's jobs are looked at."""
    shared = place / "shared"
    shared.mkdir(mode=0o777)
    for uid, job_id in ((ALICE, 7), (BOB, 8), (0, 9)):
        made(directory(shared / str(uid), uid), job_id, uid)
    assert jobs(clean(shared, owner=os.geteuid())) == [9]
    assert jobs(clean(shared)) == [7, 8]


def test_a_hard_link_gives_no_room(work: Path, home: Path) -> None:
    """A log with another name is removed, and its bytes are not counted."""
    own, kept = made(work, 7, ALICE), home / "thesis"
    os.link(work / "logs" / "train-7-worker-0.log", kept)
    age(own, 40, ALICE, kept)
    first = clean(home)["jobs"][0]["bytes"]
    assert (kept.read_text(), kept.stat().st_nlink) == ("x" * 5000, 1)
    kept.unlink()
    made(work, 7, ALICE)
    assert clean(home)["jobs"][0]["bytes"] > first
