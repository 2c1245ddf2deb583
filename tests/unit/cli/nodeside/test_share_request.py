"""Commands on another user's job ask its supervisor, and print the answer. A thread acts as the supervisor."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import pytest

from slurm_plugin.__main__ import main
from slurm_plugin.cli.nodeside import job_lookup
from slurm_plugin.cli.nodeside.actions import share_request
from slurm_plugin.records import job_directory, requests
from slurm_plugin.records.requests import Answer, Request
from slurm_plugin.slurm import Queueing, SlurmError
from tests.fakes import FakeSlurm, job
from tests.waiting import HANG_S, until


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeSlurm:
    """Return a door that knows job 7 of alice, which runs. The caller is bob."""
    fake = FakeSlurm([job(state="RUNNING", reason="", nodes="n1", restarts=1)])
    fake.directories[7] = str(tmp_path)
    fake.settings["ClusterName"] = "ours"
    monkeypatch.setattr(job_lookup, "connect", lambda **_: fake)
    monkeypatch.setattr(share_request, "ANSWER_S", HANG_S)
    monkeypatch.setattr(share_request, "is_anothers", lambda found: found.user == "alice")
    monkeypatch.setattr(share_request.pwd, "getpwnam", lambda _: SimpleNamespace(pw_uid=os.geteuid()))
    return fake


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return the job's directory, which takes requests."""
    found = job_directory.directory(tmp_path, 7)
    (found / requests.DIRECTORY).mkdir()
    return found


@pytest.fixture
def answering(directory: Path) -> Callable[..., list[Request]]:
    """Return a function that begins to answer one request, and returns the list where the request will be."""

    def begin(said: str, *, done: bool) -> list[Request]:
        taken: list[Request] = []

        def answer() -> None:
            (file,) = until(lambda: list((directory / requests.DIRECTORY).glob("[0-9]*")), "a request")
            taken.append(requests.parse(file.read_bytes()))
            requests.answer(directory, Answer("0-1.json", 1, "dan", "stop", done=not done, said="another"))
            requests.answer(directory, Answer(file.name, 1, "bob", taken[0].verb, done=done, said=said))

        Thread(target=answer, daemon=True).start()
        return taken

    return begin


@pytest.mark.parametrize("verb", ["stop", "release", "rerun"])
def test_it_is_done(
    slurm: FakeSlurm,
    directory: Path,
    answering: Callable[..., list[Request]],
    capsys: pytest.CaptureFixture[str],
    verb: str,
) -> None:
    """The command prints the answer to its own request, which names the job's run. Nothing is sent to Slurm."""
    taken = answering("as you wish\x1b[2J", done=True)
    assert main([verb, "7"]) == 0
    assert capsys.readouterr().out == "job 7: as you wish?[2J\n"
    assert taken == [Request(verb, {}, 7, 1, "ours")]
    assert slurm.changes == []
    assert list((directory / requests.DIRECTORY).iterdir()) == []


def test_json(slurm: FakeSlurm, answering: Callable[..., list[Request]], capsys: pytest.CaptureFixture[str]) -> None:
    """The form is that of one's own job."""
    answering("fine", done=True)
    assert main(["stop", "7", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"v": 1, "asked": "stop", "jobs": [{"job": 7, "saves": True}]}


def test_it_is_refused(
    slurm: FakeSlurm, answering: Callable[..., list[Request]], capsys: pytest.CaptureFixture[str]
) -> None:
    """The message has the supervisor's reason."""
    answering("the job is not held", done=False)
    assert main(["release", "7"]) == 1
    assert capsys.readouterr().err == "slurm-plugin: job 7: the job is not held\n  see: slurm-plugin why 7\n"


def test_no_answer(
    slurm: FakeSlurm, directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The request is withdrawn, so that it is not carried out later."""
    monkeypatch.setattr(share_request, "ANSWER_S", 0.0)
    assert main(["stop", "7"]) == 1
    assert "job 7 did not answer in 0 s" in capsys.readouterr().err
    assert list((directory / requests.DIRECTORY).iterdir()) == []


def test_ctrl_c(slurm: FakeSlurm, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C withdraws the request, too."""

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(share_request.time, "sleep", interrupt)
    assert main(["stop", "7"]) == 130
    assert list((directory / requests.DIRECTORY).iterdir()) == []


def test_an_answer_of_another_user(
    slurm: FakeSlurm, directory: Path, answering: Callable[..., list[Request]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a file of the job's user is believed."""
    monkeypatch.setattr(share_request.pwd, "getpwnam", lambda _: SimpleNamespace(pw_uid=os.geteuid() + 1))
    answering("fine", done=True)

    def give_up(_: float) -> None:
        if len(requests.answers(directory)) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(share_request.time, "sleep", give_up)
    assert main(["stop", "7"]) == 130


@pytest.mark.parametrize("verb", ["release", "rerun"])
def test_a_job_that_is_not_shared(
    slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    """The message says how its owner could allow it."""
    job_directory.directory(tmp_path, 7)
    assert main([verb, "7"]) == 1
    assert capsys.readouterr().err == (
        f"slurm-plugin: job 7 is alice's and not shared with you: only alice can {verb} it\n"
        "  its spec may have: share: {group: ONE OF YOURS, access: read-write}; yours are: id -Gn\n"
    )


def test_an_operator(slurm: FakeSlurm, tmp_path: Path) -> None:
    """Whoever may stop each job by Slurm's own rules, does so if the job is not shared."""
    job_directory.directory(tmp_path, 7)
    assert main(["stop", "7"]) == 0
    assert slurm.changes == [("signal", 7, "INT", "batch")]


@pytest.mark.parametrize(
    ("words", "state", "method", "why"),
    [
        (["stop", "7"], "RUNNING", "signal", "only alice can stop it\n"),
        (["stop", "7"], "PENDING", "cancel", "only alice can stop it, and only while it runs also a group with which"),
        (["time", "7", "1h"], "PENDING", "update_job", "only alice can change the time of it, and only while it runs"),
    ],
)
def test_what_slurm_refuses(
    slurm: FakeSlurm,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    state: str,
    method: str,
    why: str,
) -> None:
    """The message says who may do it, in place of Slurm's."""

    def denied(*_: object, **__: object) -> None:
        raise SlurmError("could not do it: scancel said: Kill job error on job id 7: Access/permission denied")

    job_directory.directory(tmp_path, 7)
    slurm.known_jobs[7] = job(state=state)
    slurm.queues[7] = Queueing(7200)
    monkeypatch.setattr(slurm, method, denied)
    assert main(words) == 1
    assert f"job 7 is alice's and not shared with you: {why}" in capsys.readouterr().err


def test_a_directory_of_requests_that_is_a_link(
    slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The job's owner cannot make others write elsewhere."""
    (tmp_path / "elsewhere").mkdir()
    (job_directory.directory(tmp_path, 7) / requests.DIRECTORY).symlink_to(tmp_path / "elsewhere")
    assert main(["stop", "7"]) == 1
    assert "Not a directory" in capsys.readouterr().err
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_whose_job_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Root acts on each job directly, and so does a user without a name."""
    assert not share_request.is_anothers(job(user="alice"))
    monkeypatch.setattr(os, "geteuid", lambda: 20002)
    monkeypatch.setattr(share_request.pwd, "getpwuid", lambda _: SimpleNamespace(pw_name="bob"))
    assert share_request.is_anothers(job(user="alice"))
    assert not share_request.is_anothers(job(user="bob"))
    monkeypatch.setattr(share_request.pwd, "getpwuid", {}.__getitem__)
    assert not share_request.is_anothers(job(user="alice"))
