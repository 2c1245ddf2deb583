"""A job is put back into the queue once, marked with what its worker is to know."""

import pytest

from slurm_plugin import token
from slurm_plugin.job.putback import mark, put_back
from slurm_plugin.slurm import SlurmAwayError, SlurmError
from tests import fakes
from tests.fakes import job

COMMENT = "mine [sp1;retries=3;ib=auto] too"
MARKED = "mine [sp1;retries=3;ib=auto;run=1;x=1] too"
RUNNING = job(7, state="RUNNING", nodes="n[1-3]", restarts=1, comment=COMMENT)


class FakeSlurm(fakes.FakeSlurm):
    """Refuses changes to a comment until the job was requeued, as 22.05 does of one that has lost a node."""

    error: SlurmError | None = None

    def update_job(self, job_id: int, **fields: str) -> None:
        if self.error and not self.changes:
            raise self.error
        super().update_job(job_id, **fields)


def test_put_back() -> None:
    """First the mark, whole, then the requeue, which ends whoever asks for it."""
    door = FakeSlurm([RUNNING])
    assert put_back(door, 7, 1, ("n2",))
    assert door.changes == [("update_job", 7, {"Comment": MARKED}), ("requeue", 7)]


def test_what_the_mark_says() -> None:
    """Positions in the list that the run's end will have: nodes that Slurm has taken out are none of its."""
    door = FakeSlurm([RUNNING._replace(nodes="n[1,3]")])
    put_back(door, 7, 1, ("n3", "n2"), again=2)
    found = token.find(door.known_jobs[7].comment)
    assert found
    assert (found.mark, found.again) == (token.Mark(1, (1,)), 2)


def test_restarts_that_were_told_before_are_kept() -> None:
    """A watcher on another node knows of none."""
    door = FakeSlurm([RUNNING._replace(comment="[sp1;retries=3;ib=auto;again=2]", nodes="")])
    put_back(door, 7, 1, ("n1",))
    assert door.known_jobs[7].comment == "[sp1;retries=3;ib=auto;again=2;run=1]"


def test_a_later_run_has_begun() -> None:
    """It is not put back: somebody else has asked, or our own question was heard."""
    door = FakeSlurm([RUNNING._replace(restarts=2)])
    assert not put_back(door, 7, 1, ("n2",))
    assert door.changes == []


def test_a_comment_that_takes_no_mark() -> None:
    """A Slurm that refuses a change of the comment has the job requeued all the same."""
    door = FakeSlurm([RUNNING])
    door.error = SlurmError("the DB index is being set")
    assert put_back(door, 7, 1, ("n2",))
    assert door.changes == [("requeue", 7)]


def test_a_controller_that_is_away() -> None:
    """Nothing is requeued without its mark: who called asks again."""
    door = FakeSlurm([RUNNING])
    door.error = SlurmAwayError("no slurmctld answered")
    with pytest.raises(SlurmAwayError):
        put_back(door, 7, 1, ("n2",))
    assert door.changes == []


def test_a_requeue_that_is_refused() -> None:
    """The caller is to know."""
    door = FakeSlurm([RUNNING])
    door.refusals["requeue", 7] = 1
    with pytest.raises(SlurmError, match="requeue was refused"):
        put_back(door, 7, 1, ("n2",))


def test_a_job_that_is_gone() -> None:
    """The caller is to know."""
    with pytest.raises(SlurmError, match="no job 7"):
        put_back(FakeSlurm(), 7, 1, ("n2",))


def test_a_comment_without_a_token() -> None:
    """Nothing is changed."""
    door = FakeSlurm([RUNNING._replace(comment="edited")])
    with pytest.raises(ValueError, match="holds no"):
        put_back(door, 7, 1, ("n2",))
    assert door.changes == []


def test_a_mark_alone() -> None:
    """For a requeue that Slurm is about to make itself."""
    door = FakeSlurm([RUNNING])
    mark(door, 7, 1, ("n2",))
    assert door.changes == [("update_job", 7, {"Comment": MARKED})]


def test_a_mark_that_is_not_taken() -> None:
    """Is none, where Slurm refuses it; where it is away, the caller asks again."""
    door = FakeSlurm([RUNNING])
    door.error = SlurmError("the DB index is being set")
    mark(door, 7, 1, ("n2",))
    assert door.changes == []
    door.error = SlurmAwayError("no slurmctld answered")
    with pytest.raises(SlurmAwayError):
        mark(door, 7, 1, ("n2",))
