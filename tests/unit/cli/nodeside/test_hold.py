"""`slurm-plugin rerun` and `release` as a user types them; a thread acts as the supervisor."""

import json
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest

from slurm_plugin.__main__ import main
from slurm_plugin.cli.nodeside import job_lookup
from slurm_plugin.cli.nodeside.actions import control
from slurm_plugin.records import job_directory
from slurm_plugin.supervisor import hold
from tests.fakes import FakeSlurm, job
from tests.waiting import HANG_S, until

NOTED = {
    "v": 1,
    "restart": 1,
    "number": 1,
    "state": "held",
    "until": "2026-03-01T12:00:00+00:00",
    "code": 5,
    "cause": "x",
}


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeSlurm:
    """Return a door that knows job 7, whose directory `work` has the record of a hold."""
    fake = FakeSlurm([job(state="RUNNING", reason="", nodes="n1", restarts=1)])
    fake.directories[7] = str(tmp_path / "work")
    directory = job_directory.directory(tmp_path / "work", 7)
    (directory / hold.STATE).write_text(json.dumps(NOTED))
    (directory / hold.REQUEST).touch()
    monkeypatch.setattr(job_lookup, "connect", lambda **_: fake)
    monkeypatch.setattr(control, "TAKEN_S", HANG_S)
    return fake


def supervisor(directory: Path, **then: object) -> Thread:
    """Take one request and write the new state."""

    def wait() -> None:
        until(lambda: hold.requested(directory), "a request")
        job_directory.write(directory / hold.STATE, json.dumps({**NOTED, **then}))

    thread = Thread(target=wait, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize(
    ("verb", "then", "says"),
    [
        ("rerun", {"state": "running"}, "runs again"),
        ("rerun", {"number": 2}, "runs again"),  # and has failed and is held already
        ("release", {"state": "over"}, "is over"),
    ],
)
def test_a_request(
    slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str, then: dict[str, object], says: str
) -> None:
    """The command writes the request and prints the result."""
    directory = tmp_path / "work/.slurm_plugin/7"
    thread = supervisor(directory, **then)
    assert main([verb, "7"]) == 0
    thread.join()
    assert hold.requested(directory) == verb
    said = capsys.readouterr().out
    assert said.startswith("job 7: its ")
    assert says in said


def test_json(slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--json prints one object."""
    supervisor(tmp_path / "work/.slurm_plugin/7", state="over")
    assert main(["release", "--json", "7"]) == 0
    assert json.loads(capsys.readouterr().out) == {"v": 1, "asked": "release", "jobs": [{"job": 7}]}


def unreadable(slurm: FakeSlurm, directory: Path) -> None:
    (directory / hold.STATE).unlink()


def ended(slurm: FakeSlurm, directory: Path) -> None:
    slurm.known_jobs[7] = slurm.known_jobs[7]._replace(state="FAILED")


def pending(slurm: FakeSlurm, directory: Path) -> None:
    slurm.known_jobs[7] = slurm.known_jobs[7]._replace(state="PENDING")


def unknown(slurm: FakeSlurm, directory: Path) -> None:
    del slurm.known_jobs[7]


def runs(slurm: FakeSlurm, directory: Path) -> None:
    (directory / hold.STATE).write_text(json.dumps({**NOTED, "state": "running"}))


def requeued(slurm: FakeSlurm, directory: Path) -> None:
    (directory / hold.STATE).write_text(json.dumps({**NOTED, "restart": 0}))


def elsewhere(slurm: FakeSlurm, directory: Path) -> None:
    slurm.directories[7] = "/nonexistent"


def no_request(slurm: FakeSlurm, directory: Path) -> None:
    (directory / hold.REQUEST).unlink()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (unreadable, "job 7 is not held: its command runs\n  see it with: slurm-plugin why 7\n"),
        (runs, "job 7 is not held: its command runs\n"),
        (requeued, "job 7 is not held: its command runs\n"),
        (ended, "job 7 has ended: it is FAILED\n  try: slurm-plugin why 7\n"),
        (pending, "job 7 does not run: it is PENDING\n"),
        (unknown, "Slurm does not know job 7\n"),
        (elsewhere, "/nonexistent/.slurm_plugin/7: No such file or directory on this machine; it is made when"),
        (no_request, "hold.request: No such file or directory\n  to end the hold: scancel 7\n"),
    ],
)
def test_a_job_that_is_not_held(
    slurm: FakeSlurm,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: Callable[[FakeSlurm, Path], None],
    says: str,
) -> None:
    """A job that is not held gives exit code 1, the cause and the next command."""
    change(slurm, tmp_path / "work/.slurm_plugin/7")
    assert main(["release", "7"]) == 1
    said = capsys.readouterr()
    assert (said.out, says in said.err) == ("", True), said.err


def test_nobody_takes_it(slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Without an answer of the supervisor the message says how to end the hold."""
    monkeypatch.setattr(control, "TAKEN_S", 0.3)
    assert main(["rerun", "7"]) == 1
    said = capsys.readouterr().err
    assert "job 7 did not take it in 0.3 s" in said
    assert "to end the hold: scancel 7\n" in said


def test_a_job_of_another_user(
    slurm: FakeSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only the owner of a job may send a request."""

    def refused(directory: Path, word: str) -> None:
        raise PermissionError(13, "Permission denied", str(directory))

    monkeypatch.setattr(hold, "request", refused)
    assert main(["release", "7"]) == 1
    assert "job 7 is alice's and not shared with you: only alice can release it\n" in capsys.readouterr().err


def test_no_job(slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    """A word that is no job is wrong usage."""
    for word in ["n1", "", "7_1_2", "\x1b"]:
        assert main(["rerun", word]) == 2, word
        assert "\x1b" not in capsys.readouterr().err, word


def test_another_clusters_hold(slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The hold of another cluster's job with the same number gets no request."""
    slurm.settings["ClusterName"] = "ours"
    directory = tmp_path / "work/.slurm_plugin/7"
    (directory / hold.STATE).write_text(json.dumps({**NOTED, "cluster": "theirs"}))
    assert main(["release", "7"]) == 1
    assert "job 7 is not held" in capsys.readouterr().err
    assert hold.requested(directory) == ""
    (directory / hold.STATE).write_text(json.dumps({**NOTED, "cluster": "ours"}))
    supervisor(directory, state="over", cluster="ours")
    assert main(["release", "7"]) == 0
