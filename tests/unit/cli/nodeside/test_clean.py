"""`slurm-plugin clean` as a user or root types it."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.__main__ import main
from slurm_plugin.cli.nodeside import check_context, clean, job_lookup
from slurm_plugin.node import retention
from slurm_plugin.records import job_directory
from tests.fakes import FakeSlurm

OLD_S = 40 * 86400


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeSlurm:
    """Return a door that knows no job. The current directory has a job's directory that is 40 days old."""
    fake = FakeSlurm()
    fake.settings["ClusterName"] = "here"
    settings: dict[str, Any] = {"prechecks": {"state": str(tmp_path / "state")}, "logs": {"keep_s": 30 * 86400}}
    monkeypatch.setattr(job_lookup, "connect", lambda **_: fake)
    monkeypatch.setattr(check_context, "site", lambda _: check_context.Site(settings, "here"))
    monkeypatch.chdir(tmp_path)
    old(tmp_path, 7)
    return fake


def old(work: Path, job_id: int) -> Path:
    own = job_directory.directory(work, job_id)
    (own / "log").write_text("x" * 5000)
    for path in (own / "log", own):
        os.utime(path, (time.time() - OLD_S, time.time() - OLD_S))
    time.sleep(0.02)  # a tick of the clock of file times: what is removed is older than the question
    return own


def test_here(slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A line for each job with its room, and the sum; a second time there is nothing."""
    own = tmp_path / ".slurm_plugin" / "7"
    assert main(["clean", "--dry-run"]) == 0
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{own}: would be removed, ")
    assert last.startswith("jobs that ended more than 30 d 0 h ago: 1 would be removed, ")
    assert own.exists()
    assert main(["clean"]) == 0
    assert capsys.readouterr().out.startswith(f"{own}: removed, ")
    assert not own.exists()
    assert main(["clean"]) == 0
    assert capsys.readouterr().out == "jobs that ended more than 30 d 0 h ago: 0 removed, 0 B\n"


def test_an_age_of_the_site(
    slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own is longer than the default, so nothing is removed; a user may ask for another one."""
    settings = {"prechecks": {"state": str(tmp_path / "state")}, "logs": {"keep_s": 50 * 86400}}
    monkeypatch.setattr(check_context, "site", lambda _: check_context.Site(settings, "here"))
    for words, removed in ([], 0), (["--older", "35d"], 1):
        assert main(["clean", "--dry-run", *words]) == 0
        said = capsys.readouterr().out.splitlines()[-1]
        assert f"more than {'35' if words else '50'} d 0 h ago: {removed} would be removed" in said


def test_the_directories_of_the_callers_jobs(
    slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are searched without being named, each once and without what is below it; one that is gone is no problem."""
    monkeypatch.setenv(job_directory.STATE_HOME, str(tmp_path / "home"))
    here, away, below = (tmp_path / name for name in ("here", "away", "away/below"))
    owns = []
    for job_id, place in ((8, here), (9, away), (10, below)):
        place.mkdir()
        owns.append(old(place, job_id))
    for place in (here, away, tmp_path / "gone"):
        job_directory.remember(str(place))
    monkeypatch.chdir(here)
    assert main(["clean", "--json", "--dry-run"]) == 0
    assert [each["job"] for each in json.loads(capsys.readouterr().out)["jobs"]] == [8, 9]
    assert main(["clean"]) == 0
    assert [each.exists() for each in owns] == [False, False, True]
    assert (tmp_path / ".slurm_plugin" / "7").exists()


@pytest.mark.parametrize(("words", "found"), [(["--older", "50d"], []), (["--older", "39d"], [7]), ([], [7])])
def test_older(
    slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], found: list[int]
) -> None:
    """The age is the site's, or the caller's."""
    assert main(["clean", "--json", *words]) == 0
    form = json.loads(capsys.readouterr().out)
    assert [each["job"] for each in form["jobs"]] == found
    assert set(form) == {"v", "removed", "older_s", "jobs", "kept", "foreign", "problems", "bytes"}
    assert all(set(each) == {"job", "uid", "directory", "bytes"} for each in form["jobs"])


def test_directories(slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--directory and further words each name one; one that cannot be searched is a problem, with exit code 1."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        old(tmp_path / name, 8)
    assert main(["clean", "--json", "--directory", str(tmp_path / "a"), str(tmp_path / "b"), "/nonexistent/c"]) == 1
    form = json.loads(capsys.readouterr().out)
    assert [each["directory"] for each in form["jobs"]] == [f"{tmp_path / name}/.slurm_plugin/8" for name in ("a", "b")]
    assert "/nonexistent/c: " in form["problems"][0]
    assert (tmp_path / ".slurm_plugin" / "7").exists()


@pytest.mark.parametrize("question", ["config", "jobs"])
def test_slurm_does_not_answer(slurm: FakeSlurm, tmp_path: Path, question: str) -> None:
    """Exit code 2, and nothing is removed."""
    slurm.refusals[question, None] = 1
    assert main(["clean"]) == 2
    assert (tmp_path / ".slurm_plugin" / "7").exists()


def test_all_users(slurm: FakeSlurm, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Only root may, and only in directories that are named."""
    assert main(["clean", "--all-users"]) == 2
    assert "slurm-plugin clean --all-users /home/*" in capsys.readouterr().err
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main(["clean", "--all-users", "/home"]) == 2
    assert "your own: slurm-plugin clean" in capsys.readouterr().err


def test_a_file_system_that_hangs(
    slurm: FakeSlurm, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search of one directory ends after a time, and the next one is searched."""
    monkeypatch.setattr(clean, "DEADLINE_S", 0.2)
    monkeypatch.setattr(retention, "clean", lambda *_, **__: time.sleep(3600))
    assert main(["clean", "--json", "/a", "/b"]) == 1
    assert len(json.loads(capsys.readouterr().out)["problems"]) == 2
