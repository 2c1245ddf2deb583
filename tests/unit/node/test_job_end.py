"""A job on a bad node that Slurm may not requeue: its prolog ends it, and says why."""

import pytest

from slurm_plugin.node import job_end
from slurm_plugin.records import grant, syslog
from slurm_plugin.records.grant import Grant
from slurm_plugin.slurm import SlurmAwayError
from tests import fakes
from tests.fakes import FakeSlurm
from tests.unit.node.bad_node import REASON

WORDS = "n1: gpu-check: 3 of 4 GPUs"


@pytest.fixture(autouse=True)
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the lines of the system log."""
    lines: list[str] = []
    monkeypatch.setattr(syslog, "syslog", lambda *words: lines.append(words[-1]))
    monkeypatch.setattr(job_end, "HEARD_S", 0.0)
    return lines


def slurm(state: str = "RUNNING", admin_comment: str = "") -> FakeSlurm:
    """Return a Slurm with job 7."""
    return FakeSlurm([fakes.job(7, state=state, restarts=0, admin_comment=admin_comment)])


def test_one_that_may_be_requeued_is_left_to_slurm() -> None:
    """Nothing changes; the prolog fails."""
    door = slurm()
    door.requeueable = {7}
    assert not job_end.end_job(door, 7, "n1", REASON)
    assert door.changes == []


def test_any_other_ends(said: list[str]) -> None:
    """The user and the system log get the reason; the site's text in admin_comment stays."""
    door = slurm(admin_comment="the site's")
    assert job_end.end_job(door, 7, "n1", REASON)
    assert door.changes == [("notify", 7, f"slurm_plugin: {WORDS}"), ("cancel", 7)]
    assert said == [f"job 7: ended, it may not be requeued: {WORDS}"]


@pytest.mark.parametrize(("granted", "last"), [(0, f"no restart left after {WORDS}"), (2, "")])
def test_the_grant_says_why(granted: int, last: str) -> None:
    """Only if no restart was left; else the node's reason says it."""
    door = slurm(admin_comment=grant.written("the site's", Grant(granted)))
    assert job_end.end_job(door, 7, "n1", REASON)
    text = door.known_jobs[7].admin_comment
    assert text.startswith("the site's sp1:")
    assert grant.parse(text) == Grant(granted, last=last)


@pytest.mark.parametrize("state", ["COMPLETING", "CANCELLED", "FAILED"])
def test_one_that_has_ended_is_left_alone(state: str) -> None:
    """Another node's prolog was first; this one exits 0 as well."""
    door = slurm(state)
    assert job_end.end_job(door, 7, "n1", REASON)
    assert door.changes == []


@pytest.mark.parametrize("refused", ["may_requeue", "cancel"])
def test_where_slurm_does_not_answer_the_prolog_fails(said: list[str], refused: str) -> None:
    """A job must not start on a bad node; the system log has the error."""
    door = slurm()
    door.refusals[refused, 7] = 1
    assert not job_end.end_job(door, 7, "n1", REASON)
    assert said == [f"job 7 could not be ended, its prolog fails: {refused} was refused"]


def test_one_that_slurm_does_not_know() -> None:
    """The prolog fails."""
    assert not job_end.end_job(FakeSlurm(), 7, "n1", REASON)


@pytest.mark.parametrize("refused", ["update_job", "notify"])
def test_words_that_slurm_refuses_keep_nothing_from_ending(said: list[str], refused: str) -> None:
    """The system log still has them."""
    door = slurm(admin_comment=grant.written("", Grant()))
    door.refusals[refused, 7] = 1
    assert job_end.end_job(door, 7, "n1", REASON)
    assert ("cancel", 7) in door.changes
    assert said[0] == f"job 7 was not told why it ends: {refused} was refused"


@pytest.mark.parametrize(("sent", "ends"), [(True, True), (False, False)])
def test_an_end_that_slurm_was_sent_is_made(sent: bool, ends: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """However late the answer is: after a failed prolog slurmd would repeat its request."""
    door = slurm()

    def late(_job: int) -> None:
        raise SlurmAwayError("scancel gave no answer in 5 s", sent=sent)

    monkeypatch.setattr(door, "cancel", late)
    assert job_end.end_job(door, 7, "n1", REASON) is ends


def test_nothing_is_told_where_slurm_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each answer may take five seconds, too long for a prolog."""
    door, clock = slurm(), iter((0.0, job_end.SLOW_S + 1))
    monkeypatch.setattr(job_end.time, "monotonic", lambda: next(clock))
    assert job_end.end_job(door, 7, "n1", REASON)
    assert door.changes == [("cancel", 7)]
