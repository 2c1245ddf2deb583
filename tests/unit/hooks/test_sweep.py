"""Directories of runs whose epilog never came: which are over, and when Slurm is asked."""

import os
import time
from pathlib import Path

import pytest

from slurm_plugin.hooks import cleanup, node_directory, sweep
from slurm_plugin.slurm import Job
from tests.fakes import FakeSlurm, job

ALICE = 27182  # no user of a sandbox, whose processes are this machine's too
HOUR = 3600.0


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Directories of two runs of job 7 and one of job 8, two hours old, with what users put there."""
    monkeypatch.setattr(sweep.syslog, "syslog", lambda *_: None)
    site = {"run_directory": str(tmp_path / "run")}
    for name in ("7.0.0", "7.1.0", "8.0.0"):
        node_directory.create(site["run_directory"], name, uid=ALICE, gid=ALICE)
        (tmp_path / "run/jobs" / name / "user/task.sh").write_text("x")
        age(site, name, 2 * HOUR)
    return site


def age(site: dict[str, str], name: str, seconds: float) -> None:
    """Have nobody written there for so long."""
    then = time.time() - seconds
    os.utime(f"{site['run_directory']}/jobs/{name}", (then, then))


def runs(site: dict[str, str]) -> list[str]:
    """The directories that are there."""
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


@pytest.mark.parametrize(("known", "over"), TABLE.values(), ids=TABLE.keys())
def test_is_over(known: Job | None, over: bool) -> None:
    """Whether a job has nothing more to do with n1."""
    assert sweep.is_over(known, "n1") is over


def test_sweep(site: dict[str, str]) -> None:
    """One question for all old directories; those of runs that are over go, the others are let be for an hour."""
    door = FakeSlurm([job(8, state="RUNNING", nodes="n1")])
    assert sweep.sweep(site, "n1", lambda: door) == ["7.0.0", "7.1.0"]
    assert runs(site) == ["8.0.0"]
    assert door.questions == [("jobs", (7, 8))]
    assert sweep.sweep(site, "n1", lambda: door) == []
    assert len(door.questions) == 1
    del door.known_jobs[8]
    assert sweep.sweep(site, "n1", lambda: door, now=time.time() + HOUR + 60) == ["8.0.0"]
    assert runs(site) == []


def test_young_directories(site: dict[str, str]) -> None:
    """Slurm is not asked about them."""
    for name in runs(site):
        age(site, name, HOUR / 2)
    door = FakeSlurm()
    assert sweep.sweep(site, "n1", lambda: door) == []
    assert (door.questions, len(runs(site))) == ([], 3)


def test_a_user_with_processes(site: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that may be here costs no question, however old it is."""
    monkeypatch.setattr(cleanup, "users_of_processes", lambda: {0, ALICE})
    door = FakeSlurm()
    assert sweep.sweep(site, "n1", lambda: door) == []
    assert door.questions == []


def test_no_answer(site: dict[str, str]) -> None:
    """Everything stays, and the next pass asks again."""
    door = FakeSlurm()
    door.refusals["jobs", None] = 1
    assert sweep.sweep(site, "n1", lambda: door) == []
    assert len(runs(site)) == 3
    assert sweep.sweep(site, "n1", lambda: door) == ["7.0.0", "7.1.0", "8.0.0"]


def test_what_is_no_directory_of_a_run(site: dict[str, str], tmp_path: Path) -> None:
    """Names of another form, links and files are left alone; a run's directory without its `user` goes too."""
    jobs = tmp_path / "run/jobs"
    (jobs / "9.0.0").symlink_to("/etc")
    (jobs / "10.0.0").write_text("x")
    (jobs / "notes").mkdir()
    (jobs / "11.0.0").mkdir()
    for name in ("notes", "11.0.0"):
        age(site, name, 2 * HOUR)
    assert sweep.sweep(site, "n1", FakeSlurm) == ["7.0.0", "7.1.0", "8.0.0", "11.0.0"]
    assert sorted(path.name for path in jobs.iterdir()) == ["10.0.0", "9.0.0", "notes"]


def test_before_any_job(tmp_path: Path) -> None:
    """Nothing is there."""
    assert sweep.sweep({"run_directory": str(tmp_path / "run")}, "n1", FakeSlurm) == []
