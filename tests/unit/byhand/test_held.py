"""`slurm-plugin rerun` and `release` as a user types them, with a supervisor that is a thread."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest

from slurm_plugin.__main__ import main
from slurm_plugin.byhand import asked, held
from slurm_plugin.job import files, hold
from slurm_plugin.slurm import SlurmAwayError
from tests.fakes import FakeSlurm, job

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
    """A door that knows job 7, which runs in `work`, a hold of which is noted there."""
    fake = FakeSlurm([job(state="RUNNING", reason="", nodes="n1", restarts=1)])
    fake.directories[7] = str(tmp_path / "work")
    directory = files.directory(tmp_path / "work", 7)
    (directory / hold.STATE).write_text(json.dumps(NOTED))
    (directory / hold.REQUEST).touch()
    monkeypatch.setattr(asked, "connect", lambda **_: fake)
    return fake


def supervisor(directory: Path, **then: object) -> Thread:
    """Takes one request and notes what it comes to."""

    def wait() -> None:
        end = time.monotonic() + 60
        while time.monotonic() < end and not hold.requested(directory):
            time.sleep(0.01)
        files.write(directory / hold.STATE, json.dumps({**NOTED, **then}))

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
    """It is put before the supervisor, and what came of it is said."""
    directory = tmp_path / "work/.slurm_plugin/7"
    thread = supervisor(directory, **then)
    assert main([verb, "7"]) == 0
    thread.join()
    assert hold.requested(directory) == verb
    said = capsys.readouterr().out
    assert said.startswith("job 7: its ")
    assert says in said


def test_json(slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One object."""
    supervisor(tmp_path / "work/.slurm_plugin/7", state="over")
    assert main(["release", "--json", "7"]) == 0
    assert json.loads(capsys.readouterr().out) == {"v": 1, "job": 7, "asked": "release"}


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
    """Exit 1, with the reason and what to try."""
    change(slurm, tmp_path / "work/.slurm_plugin/7")
    assert main(["release", "7"]) == 1
    said = capsys.readouterr()
    assert (said.out, says in said.err) == ("", True), said.err


def test_nobody_takes_it(slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The first node looks at another directory, or its supervisor is gone: how to end the hold all the same."""
    monkeypatch.setattr(held, "TAKEN_S", 0.3)
    assert main(["rerun", "7"]) == 1
    said = capsys.readouterr().err
    assert "job 7 did not take it in 0.3 s" in said
    assert "to end the hold: scancel 7\n" in said


def test_a_job_of_another_user(
    slurm: FakeSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only its owner writes the request."""

    def refused(directory: Path, word: str) -> None:
        raise PermissionError(13, "Permission denied", str(directory))

    monkeypatch.setattr(hold, "request", refused)
    assert main(["release", "7"]) == 1
    assert "job 7 is alice's, and only its owner can release it\n" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["n1", "", "7_1", "\x1b"])
def test_no_job(slurm: FakeSlurm, capsys: pytest.CaptureFixture[str], word: str) -> None:
    """Wrong usage."""
    assert main(["rerun", word]) == 2
    assert "\x1b" not in capsys.readouterr().err


def test_slurm_is_away(slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """It could not tell."""

    def away(_: int) -> None:
        raise SlurmAwayError("no slurmctld answers\n  try: scontrol ping")

    monkeypatch.setattr(slurm, "job", away)
    assert main(["release", "7"]) == 2
    assert capsys.readouterr().err == "slurm-plugin: no slurmctld answers\n  try: scontrol ping\n"


def test_another_clusters_hold(slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A job of the same number, in the same directory: nothing is asked of it."""
    slurm.settings["ClusterName"] = "ours"
    directory = tmp_path / "work/.slurm_plugin/7"
    (directory / hold.STATE).write_text(json.dumps({**NOTED, "cluster": "theirs"}))
    assert main(["release", "7"]) == 1
    assert "job 7 is not held" in capsys.readouterr().err
    assert hold.requested(directory) == ""
    (directory / hold.STATE).write_text(json.dumps({**NOTED, "cluster": "ours"}))
    supervisor(directory, state="over", cluster="ours")
    assert main(["release", "7"]) == 0
