"""Requests for another time limit or priority."""

from typing import Any

import pytest

from slurm_plugin.slurm import Queueing
from slurm_plugin.supervisor.share import serve
from slurm_plugin.supervisor.share.serve import Desk
from tests.fakes import FakeSlurm, job
from tests.unit.supervisor.share.shared import BOB, RUN, Directory, said


@pytest.fixture
def door(monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    """Return the door of the process: job 7 has a limit of 2 h and runs."""
    fake = FakeSlurm([job(state="RUNNING", nodes="n1")])
    fake.queues[7] = Queueing(7200)
    monkeypatch.setattr(serve, "connect", lambda **_: fake)
    monkeypatch.setattr(serve.changes, "CHANGED_S", 0.0)
    return fake


@pytest.mark.parametrize(
    ("verb", "to", "why"),
    [
        ("time", "soon", "found 'soon'; accepted: a new time limit"),
        ("time", "-1h", "found '-1h'; accepted: a new time limit"),
        ("time", "999999999999999s", "found '999999999999999s'; accepted: a new time limit"),
        ("time", "2h", ""),
        ("priority", "urgent", "this site has no urgent jobs"),
        ("priority", "root", "'root' is no priority"),
        ("priority", "normal", "job 7 runs already"),
    ],
)
def test_time_and_priority(shared: Directory, desk: Desk, door: FakeSlurm, verb: str, to: str, why: str) -> None:
    """A member changes them as the job's user could; what Slurm or the site refuses, is the answer."""
    shared.ask(BOB, verb=verb, arguments={"to": to})
    desk.look()
    ((_, _, done, text),) = said(shared)
    assert (done, text.startswith(why)) == (not why, True), text


def test_less_time(shared: Directory, desk: Desk, door: FakeSlurm) -> None:
    """The request goes to Slurm in minutes."""
    shared.ask(BOB, verb="time", arguments={"to": "1h"})
    desk.look()
    assert door.changes == [("update_job", 7, {"TimeLimit": "60"})]


def test_settings_that_cannot_be_read(shared: Directory, members: set[int], door: FakeSlurm) -> None:
    """The request is refused, and later ones are heard."""

    def missing() -> dict[str, Any]:
        raise FileNotFoundError(2, "No such file or directory", "compiled.json")

    shared.ask(BOB, verb="time", arguments={"to": "1h"})
    Desk(shared.fd, RUN, missing, lambda uid, _gid: uid in members).look()
    assert said(shared) == [(BOB, "time", False, "[Errno 2] No such file or directory: 'compiled.json'")]
