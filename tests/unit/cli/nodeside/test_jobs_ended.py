"""`slurm-plugin jobs` with jobs that have ended, of slurmdbd and of the jobs' directories."""

from datetime import timedelta
from pathlib import Path

import pytest

from slurm_plugin.records import history, job_directory
from tests.fakes import FakeSlurm
from tests.unit.cli.nodeside.job_list import ME, NOW, Run, door, ids, listed, runner
from tests.unit.records.test_history import FIRST


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeSlurm:
    """Return a door with jobs of two users."""
    return door(monkeypatch, tmp_path)


@pytest.fixture
def run(slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs the command."""
    return runner(capsys)


def test_ended_jobs_of_slurmdbd(run: Run, slurm: FakeSlurm) -> None:
    """--since adds them, and a state of ended jobs those of a day. A job that Slurm still has is listed once."""
    slurm.accounted = [
        listed(1, "COMPLETED"),
        listed(7, "TIMEOUT", end_time=NOW - timedelta(hours=2)),
        listed(8, "FAILED", end_time=NOW - timedelta(days=3)),
    ]
    assert ids(run("--since", "4d")[1]) == ["1", "2", "4_[5-8:2,11%2]", "7", "8"]
    assert ids(run("--since", "1h")[1]) == ["1", "2", "4_[5-8:2,11%2]"]
    assert ids(run("--state", "expired,error")[1]) == ["7"]
    assert ids(run("8")[1]) == ["8"]
    assert ids(run("--since", "9999999d", "--name", "train-8")[1]) == ["8"]


def test_ended_jobs_without_slurmdbd(run: Run, slurm: FakeSlurm, tmp_path: Path) -> None:
    """They come from the directories of listed jobs and submissions, and from --directory; not of other clusters."""
    slurm.settings["ClusterName"] = "here"
    job_directory.remember(str(tmp_path / "sent"))
    for place, job_id, changes in (
        ("work", 1, {}),
        ("work", 6, {"action": "finish", "code": 0, "n": 2}),
        ("work", 7, {"action": "fail", "code": 7, "nodes": 3}),
        ("sent", 8, {"action": "finish", "code": 143}),
        ("work", 9, {"cluster": "other"}),
        ("work", 11, {"action": "fail", "cause": f"the program {history.OVER_TIME}; no restart is left"}),
        ("more", 10, {"action": [], "start": {}, "n": "x", "nodes": "n[1-", "code": True}),
    ):
        job_directory.record(job_directory.directory(tmp_path / place, job_id), {**FIRST, **changes})
    code, out, err = run("--since", "4d", "--format", "id,state,restarts,elapsed,exit,nodelist", "--directory", "more")
    assert (code, err) == (0, "")
    assert [line.split() for line in out.splitlines()[1:]] == [
        ["1", "running", "R", "0", "11min40s", "-", "n1"],
        ["2", "queued", "PD", "0", "-", "-", "(Priority)"],
        ["4_[5-8:2,11%2]", "queued", "PD", "0", "-", "-", "-"],
        ["6", "succeeded", "CD", "2", "12min5s", "0", "n[1-4]"],
        ["7", "error", "F", "0", "12min5s", "7", "-"],
        ["8", "stopped", "CA", "0", "12min5s", "143", "n[1-4]"],
        ["10", "stopped", "CA", "0", "-", "-", "n[1-"],
        ["11", "expired", "TO", "0", "12min5s", "1", "n[1-4]"],
    ]


def test_a_job_that_was_over_its_time(run: Run, slurm: FakeSlurm, tmp_path: Path) -> None:
    """Slurm sees it as FAILED, because it had time to save."""
    slurm.listed = [listed(1, "FAILED", str(tmp_path / "work"))]
    changes = {"action": "fail", "cause": f"the program {history.OVER_TIME}; no restart is left", "n": 3}
    job_directory.record(job_directory.directory(tmp_path / "work", 1), {**FIRST, **changes})
    out = run("--state", "expired", "--format", "id,state,restarts")[1]
    assert out.splitlines()[1].split() == ["1", "expired", "F", "3"]


def test_slurmdbd_is_away(run: Run, slurm: FakeSlurm) -> None:
    """The list shows what is known, and says what is not."""
    slurm.accounted = []
    slurm.refusals["ended", None] = 1
    code, out, _ = run("--since", "4d")
    assert (code, out.splitlines()[-1]) == (0, "slurmdbd does not answer: ended was refused")


def test_without_slurmdbd_other_users_have_no_ended_jobs(run: Run, slurm: FakeSlurm, tmp_path: Path) -> None:
    """Their directories are theirs."""
    job_directory.record(job_directory.directory(tmp_path, 6), FIRST)
    assert ids(run("--user", "bob", "--since", "4d")[1]) == ["3_1"]
    assert ids(run("--user", f"bob,{ME}", "--state", "FAILED,CA")[1]) == ["6"]


def test_a_named_job_with_another_state(run: Run, slurm: FakeSlurm) -> None:
    """It is known: nothing is wrong."""
    assert run("1", "--state", "held")[::2] == (0, "")
