"""Directories of runs that had no epilog: which runs are over, and when Slurm is asked."""

import os
import time
from pathlib import Path

import pytest

from slurm_plugin.node import cleanup
from slurm_plugin.records import node_directory
from tests.fakes import FakeSlurm, job
from tests.unit.node.owned import UNKNOWN

ALICE = UNKNOWN
HOUR = 3600.0


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Directories of two runs of job 7 and one of job 8, two hours old, with what users put there."""
    monkeypatch.setattr(cleanup.syslog, "syslog", lambda *_: None)
    site = {"run_directory": str(tmp_path / "run")}
    for name in ("7.0.0", "7.1.0", "8.0.0"):
        node_directory.create(site["run_directory"], name, uid=ALICE, gid=ALICE)
        (tmp_path / "run/jobs" / name / "user/task.sh").write_text("x")
        age(site, name, 2 * HOUR)
    return site


def age(site: dict[str, str], name: str, seconds: float) -> None:
    """Make these directories this old."""
    then = time.time() - seconds
    os.utime(f"{site['run_directory']}/jobs/{name}", (then, then))


def runs(site: dict[str, str]) -> list[str]:
    """Return the directories that exist."""
    return node_directory.all_runs(site["run_directory"])


TABLE = {
    "Slurm has forgotten it": (None, True),
    "it has ended": (job(7, state="FAILED", nodes="n1"), True),
    "it runs here": (job(7, state="RUNNING", nodes="n[1-2]"), False),
    "it ends here": (job(7, state="COMPLETING", nodes="n1"), False),
    "it runs elsewhere": (job(7, state="RUNNING", nodes="n[2-12]"), True),
    "it waits": (job(7, state="PENDING"), False),
    "its state is new to us": (job(7, state="UNKNOWN", nodes="n1"), False),
}


def test_is_over() -> None:
    """The table says whether a job is over for n1."""
    for name, (known, over) in TABLE.items():
        assert cleanup.is_over(known, "n1") is over, name


def test_sweep(site: dict[str, str]) -> None:
    """One question for all old directories; those that are over are removed, the others wait an hour."""
    door = FakeSlurm([job(8, state="RUNNING", nodes="n1")])
    assert cleanup.sweep_runs(site, "n1", lambda: door) == ["7.0.0", "7.1.0"]
    assert runs(site) == ["8.0.0"]
    assert door.questions == [("jobs", (7, 8))]
    assert cleanup.sweep_runs(site, "n1", lambda: door) == []
    assert len(door.questions) == 1
    del door.known_jobs[8]
    assert cleanup.sweep_runs(site, "n1", lambda: door, now=time.time() + HOUR + 60) == ["8.0.0"]
    assert runs(site) == []


def test_young_directories(site: dict[str, str]) -> None:
    """Slurm is not asked about them."""
    for name in runs(site):
        age(site, name, HOUR / 2)
    door = FakeSlurm()
    assert cleanup.sweep_runs(site, "n1", lambda: door) == []
    assert (door.questions, len(runs(site))) == ([], 3)


def test_a_user_with_processes(site: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that may be here costs no question, whatever its age."""
    monkeypatch.setattr(cleanup, "users_of_processes", lambda: {0, ALICE})
    door = FakeSlurm()
    assert cleanup.sweep_runs(site, "n1", lambda: door) == []
    assert door.questions == []


def test_no_answer(site: dict[str, str]) -> None:
    """Everything stays, and the next check asks again."""
    door = FakeSlurm()
    door.refusals["jobs", None] = 1
    assert cleanup.sweep_runs(site, "n1", lambda: door) == []
    assert len(runs(site)) == 3
    assert cleanup.sweep_runs(site, "n1", lambda: door) == ["7.0.0", "7.1.0", "8.0.0"]


def test_what_is_no_directory_of_a_run(site: dict[str, str], tmp_path: Path) -> None:
    """Other names, links and files stay; a run's directory without its `user` is removed."""
    jobs = tmp_path / "run/jobs"
    (jobs / "9.0.0").symlink_to("/etc")
    (jobs / "10.0.0").write_text("x")
    (jobs / "notes").mkdir()
    (jobs / "11.0.0").mkdir()
    for name in ("notes", "11.0.0"):
        age(site, name, 2 * HOUR)
    assert cleanup.sweep_runs(site, "n1", FakeSlurm) == ["7.0.0", "7.1.0", "8.0.0", "11.0.0"]
    assert sorted(path.name for path in jobs.iterdir()) == ["10.0.0", "9.0.0", "notes"]


def test_before_any_job(tmp_path: Path) -> None:
    """Without a jobs directory nothing happens."""
    assert cleanup.sweep_runs({"run_directory": str(tmp_path / "run")}, "n1", FakeSlurm) == []
