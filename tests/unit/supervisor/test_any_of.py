"""Alternatives of a job: which one goes on, and what happens to the others."""

import pytest

from slurm_plugin.slurm import Job, SlurmAwayError, SlurmError
from slurm_plugin.supervisor import any_of
from slurm_plugin.supervisor.launcher import Launcher
from tests.fakes import FakeSlurm, job


class Quick(Launcher):
    """Does not sleep."""

    def pause(self, seconds: float) -> None:
        """Count the pause."""
        self.paused = getattr(self, "paused", 0.0) + seconds


def given(**states: str) -> dict[int, Job]:
    """Return jobs such as `j11="RUNNING"`."""
    return {int(name[1:]): job(int(name[1:]), state=state, reason="") for name, state in states.items()}


def test_who_goes_on() -> None:
    """The lowest id of the running ones."""
    for jobs, winner in (
        (given(j12="RUNNING", j11="PENDING", j13="PENDING"), None),
        (given(j12="RUNNING", j11="RUNNING"), 11),
        (given(j12="RUNNING", j11="CONFIGURING", j13="RUNNING"), 11),
        (given(j12="RUNNING", j13="RUNNING"), None),
        (given(j12="RUNNING", j11="CANCELLED", j13="COMPLETING"), None),
        (given(j12="RUNNING", j11="COMPLETING"), None),
        (given(j12="RUNNING", j11="UNKNOWN"), 11),
        (given(j12="RUNNING", j11="SUSPENDED"), 11),
        (given(j12="RUNNING", j11="REQUEUE_HOLD"), None),
        (given(j12="RUNNING"), None),
        ({}, None),
    ):
        assert any_of.lost_to(12, jobs) == winner, jobs


def test_the_first_to_start(capsys: pytest.CaptureFixture[str]) -> None:
    """It holds the others before it reads their states, and cancels them."""
    door = FakeSlurm(given(j11="PENDING", j12="RUNNING", j13="PENDING").values())
    assert any_of.claim(door, 12, (11, 13), Quick())
    assert set(door.changes[:2]) == {("hold", 11), ("hold", 13)}
    assert door.changes[2:] == [("cancel", 11), ("cancel", 13)]
    assert "this job runs, and not those with which it was submitted (any_of): 11, 13" in capsys.readouterr().out


def test_the_second_of_a_second(capsys: pytest.CaptureFixture[str]) -> None:
    """It releases the winner, and cancels itself."""
    door = FakeSlurm(given(j11="CONFIGURING", j12="RUNNING", j13="PENDING").values())
    assert not any_of.claim(door, 12, (11, 13), Quick())
    assert set(door.changes[:2]) == {("hold", 11), ("hold", 13)}
    assert door.changes[2:] == [("release", 11), ("release", 13), ("cancel", 12)]
    assert "job 11 runs in the place of this one" in capsys.readouterr().out


def test_refusals() -> None:
    """An ended job cannot be held, nor a forgotten one."""
    door = FakeSlurm(given(j12="RUNNING", j11="COMPLETED").values())
    door.refusals = {("hold", 11): 1, ("hold", 13): 1, ("cancel", 13): 1}
    assert any_of.claim(door, 12, (11, 13), Quick())


def test_one_that_cannot_be_held() -> None:
    """It could start later and win: the hold is repeated. If it is always refused, nothing runs."""
    door = FakeSlurm(given(j11="PENDING", j12="RUNNING").values())
    door.refusals = {("hold", 11): 5}
    launcher = Quick()
    assert any_of.claim(door, 12, (11,), launcher)
    assert door.changes[0] == ("hold", 11)
    door = FakeSlurm(given(j11="PENDING", j12="RUNNING").values())
    door.refusals = {("hold", 11): 1000}
    with pytest.raises(SlurmError, match="job 11 cannot be kept from starting"):
        any_of.claim(door, 12, (11,), Quick())
    assert door.changes == []


def test_one_that_cannot_be_cancelled(capsys: pytest.CaptureFixture[str]) -> None:
    """It is held, so it does no harm. The log reports it, with what to do."""
    door = FakeSlurm(given(j11="PENDING", j12="RUNNING").values())
    door.refusals = {("cancel", 11): 3}
    assert any_of.claim(door, 12, (11,), Quick())
    assert "could not cancel" not in capsys.readouterr().out
    assert door.known_jobs[11].state == "CANCELLED"
    door = FakeSlurm(given(j11="PENDING", j12="RUNNING").values())
    door.refusals = {("cancel", 11): 1000}
    assert any_of.claim(door, 12, (11,), Quick())
    assert "could not cancel 11, which wait(s) on hold; do it with: scancel 11" in capsys.readouterr().out


def test_a_job_that_is_told_to_end_meanwhile() -> None:
    """Nothing of it starts."""
    door = FakeSlurm(given(j11="PENDING", j12="RUNNING").values())
    launcher = Quick()
    launcher.told_to_end = True
    assert not any_of.claim(door, 12, (11,), launcher)


class Away(FakeSlurm):
    """A controller that does not answer any more."""

    def hold(self, job_id: int) -> None:
        """The hold may have been done."""
        raise SlurmAwayError("away")


def test_nobody_knows() -> None:
    """If no controller answers, nothing runs."""
    launcher = Quick()
    launcher.told_to_end = True  # else only 300 s later
    with pytest.raises(SlurmAwayError):
        any_of.claim(Away(given(j12="RUNNING").values()), 12, (11,), launcher)


def test_by_the_comment(capsys: pytest.CaptureFixture[str]) -> None:
    """The job's own comment lists the others. Without others it asks nobody."""
    jobs = given(j11="PENDING", j12="RUNNING")
    jobs[12] = jobs[12]._replace(comment="mine [sp1;retries=1;ib=auto;any=11,12]")
    door = FakeSlurm(jobs.values())
    assert any_of.is_mine(door, 12, Quick())
    assert ("cancel", 11) in door.changes
    for comment in ("", "[sp1;retries=1]", "[sp1;retries=1;any=12]"):
        door = FakeSlurm([job(12, state="RUNNING", comment=comment)])
        assert any_of.is_mine(door, 12, Quick())
        assert door.changes == []
    launcher = Quick()
    launcher.told_to_end = True
    jobs[12] = jobs[12]._replace(comment="[sp1;retries=1;any=11,12]")
    capsys.readouterr()
    assert not any_of.is_mine(Away(jobs.values()), 12, launcher)
    assert "it is unknown which of the jobs" in capsys.readouterr().out
