"""A job is requeued once, with a mark that tells the worker which nodes to exclude."""

import pytest

from slurm_plugin.records import token
from slurm_plugin.slurm import SlurmAwayError, SlurmError
from slurm_plugin.supervisor.requeue.with_grant import Request, mark, requeue, takes_changes
from tests import fakes
from tests.fakes import job

COMMENT = "mine [sp1;retries=3;ib=auto] too"
MARKED = "mine [sp1;retries=3;ib=auto;run=1;x=1] too"
RUNNING = job(7, state="RUNNING", nodes="n[1-3]", restarts=1, comment=COMMENT)


class FakeSlurm(fakes.FakeSlurm):
    """Refuses changes of a comment until the job is requeued, as 22.05 does for a job that has lost a node."""

    error: SlurmError | None = None

    def update_job(self, job_id: int, **fields: str) -> None:
        if self.error and not self.changes:
            raise self.error
        super().update_job(job_id, **fields)


def test_requeue() -> None:
    """First the whole mark, then the requeue, which ends the caller."""
    door = FakeSlurm([RUNNING])
    assert requeue(door, 7, Request(1, ("n2",)))
    assert door.changes == [("update_job", 7, {"Comment": MARKED}), ("requeue", 7)]


def test_what_the_mark_says() -> None:
    """Positions in the node list at the run's end, without nodes that Slurm has removed."""
    door = FakeSlurm([RUNNING._replace(nodes="n[1,3]")])
    requeue(door, 7, Request(1, ("n3", "n2"), again=2))
    found = token.find(door.known_jobs[7].comment)
    assert found
    assert (found.mark, found.again) == (token.Mark(1, (1,)), 2)


def test_restarts_that_were_told_before_are_kept() -> None:
    """A watcher on another node does not know them."""
    door = FakeSlurm([RUNNING._replace(comment="[sp1;retries=3;ib=auto;again=2]", nodes="")])
    requeue(door, 7, Request(1, ("n1",)))
    assert door.known_jobs[7].comment == "[sp1;retries=3;ib=auto;again=2;run=1]"


def test_a_later_run_has_begun() -> None:
    """It is not requeued: another process did it, or our own request was carried out."""
    door = FakeSlurm([RUNNING._replace(restarts=2)])
    assert not requeue(door, 7, Request(1, ("n2",)))
    assert door.changes == []


def test_a_comment_that_takes_no_mark() -> None:
    """If Slurm refuses to change the comment, the job is requeued nevertheless."""
    door = FakeSlurm([RUNNING])
    door.error = SlurmError("the DB index is being set")
    assert requeue(door, 7, Request(1, ("n2",)))
    assert door.changes == [("requeue", 7)]


def test_a_controller_that_is_away() -> None:
    """Nothing is requeued without its mark: the caller asks again."""
    door = FakeSlurm([RUNNING])
    door.error = SlurmAwayError("no slurmctld answered")
    with pytest.raises(SlurmAwayError):
        requeue(door, 7, Request(1, ("n2",)))
    assert door.changes == []


def test_a_requeue_that_is_refused() -> None:
    """The caller gets the error."""
    door = FakeSlurm([RUNNING])
    door.refusals["requeue", 7] = 1
    with pytest.raises(SlurmError, match="requeue was refused"):
        requeue(door, 7, Request(1, ("n2",)))


def test_a_job_that_is_gone() -> None:
    """The caller gets the error."""
    with pytest.raises(SlurmError, match="no job 7"):
        requeue(FakeSlurm(), 7, Request(1, ("n2",)))


def test_a_comment_without_a_token() -> None:
    """Nothing is changed."""
    door = FakeSlurm([RUNNING._replace(comment="edited")])
    with pytest.raises(ValueError, match="holds no"):
        requeue(door, 7, Request(1, ("n2",)))
    assert door.changes == []


def test_a_mark_alone() -> None:
    """For a requeue that Slurm is about to make itself."""
    door = FakeSlurm([RUNNING])
    mark(door, 7, Request(1, ("n2",)))
    assert door.changes == [("update_job", 7, {"Comment": MARKED})]


def test_a_mark_that_is_not_taken() -> None:
    """If Slurm refuses it, there is none. If Slurm is away, the caller asks again."""
    door = FakeSlurm([RUNNING])
    door.error = SlurmError("the DB index is being set")
    mark(door, 7, Request(1, ("n2",)))
    assert door.changes == []
    door.error = SlurmAwayError("no slurmctld answered")
    with pytest.raises(SlurmAwayError):
        mark(door, 7, Request(1, ("n2",)))


LOST = RUNNING._replace(nodes="n[1-2]", comment="[sp1;retries=3;ib=auto;had=1.3]")
SETTINGS = {
    "22.05 without slurmdbd": ({"SLURM_VERSION": "22.05.8", "AccountingStorageType": "accounting_storage/none"}, False),
    "22.05": ({"SLURM_VERSION": "22.05.8", "AccountingStorageType": "accounting_storage/slurmdbd"}, True),
    "24.11": ({"SLURM_VERSION": "24.11.5", "AccountingStorageType": "(null)"}, True),
    "unknown": ({}, True),
}


@pytest.mark.parametrize(("settings", "taken"), SETTINGS.values(), ids=SETTINGS)
def test_a_job_that_has_lost_a_node(settings: dict[str, str], taken: bool) -> None:
    """If Slurm cannot change it, no change is requested: the comment already shows the worker a missing node."""
    door = FakeSlurm([LOST])
    door.settings = settings
    assert takes_changes(door, 2, 3) is taken
    assert takes_changes(door, 3, 3)
    assert requeue(door, 7, Request(1, ("n2",)))
    assert door.changes[-1] == ("requeue", 7)
    assert (len(door.changes) == 2) is taken
