"""Mirrors slurm_plugin/views/states.py."""

import json

import pytest

from slurm_plugin.slurm import ENDED, HELD_BY_LIMIT, UNKNOWN, WAITING, Job
from slurm_plugin.slurm.parse import JOB_STATES
from slurm_plugin.views import states

NO_MORE = 'sp1:{"granted":1,"requeues":1,"last":"no restart left: n2: gpu-check"}'
ONE_LEFT = 'sp1:{"granted":2,"requeues":1}'
ASKED = "[sp1;retries=3;ib=auto;run=1;x=0]"  # run 1 asks for a requeue


def job(state: str, reason: str = "", nodes: str = "n1", **fields: object) -> Job:
    """Return a job of the plugin."""
    return Job(7, "ada", state, reason, nodes, "", 0, "[sp1;retries=3;ib=auto]", "")._replace(**fields)


@pytest.mark.parametrize(
    ("found", "word"),
    [
        (job("PENDING", "Priority", ""), "queued"),
        (job("PENDING", "BeginTime", "", restarts=1), "restarting"),
        (job("PENDING", "JobHeldUser", ""), "held"),
        (job("PENDING", "JobHeldAdmin", "", restarts=2), "held"),
        (job("PENDING", "JobHoldMaxRequeue", "", restarts=5), "held"),
        (job("REQUEUE_HOLD", "job requeued in held state", "", restarts=1), "held"),
        (job("REQUEUE_HOLD", "Resources", "", restarts=1), "restarting"),
        (job("REQUEUE_HOLD", HELD_BY_LIMIT, "", restarts=5), "held"),
        (job("REQUEUE_HOLD", HELD_BY_LIMIT, "", restarts=5, admin_comment=ONE_LEFT), "restarting"),
        (job("RESV_DEL_HOLD", "ReservationDeleted", ""), "held"),
        (job("CONFIGURING"), "running"),
        (job("CONFIGURING", restarts=1), "restarting"),
        (job("RUNNING"), "running"),
        (job("RUNNING", restarts=3), "running"),
        (job("COMPLETING"), "running"),
        (job("COMPLETING", comment=ASKED, restarts=1), "restarting"),
        (job("COMPLETING", comment=ASKED, restarts=2), "running"),
        (job("SUSPENDED"), "running"),
        (job("REQUEUED", restarts=1), "restarting"),
        (job("COMPLETED"), "succeeded"),
        (job("FAILED"), "error"),
        (job("NODE_FAIL"), "error"),
        (job("OUT_OF_MEMORY"), "error"),
        (job("CANCELLED"), "stopped"),
        (job("CANCELLED", admin_comment=NO_MORE), "error"),
        (job("PREEMPTED"), "stopped"),
        (job("TIMEOUT"), "expired"),
        (job("DEADLINE", nodes=""), "expired"),
        (job(UNKNOWN), "running"),
        (job(UNKNOWN, nodes=""), "queued"),
        (job("CANCELLED", admin_comment='sp1:{"granted":{}}'), "stopped"),
    ],
)
def test_word(found: Job, word: str) -> None:
    """The word follows from Slurm's state and reason, the grant and the token."""
    assert states.word(found) == word


def test_held_for_debugging() -> None:
    """Slurm sees a held job as RUNNING. A record of a hold that is over changes nothing."""
    assert states.word(job("RUNNING"), held=True) == "held"
    assert states.word(job("FAILED"), held=True) == "error"
    assert states.word(job("PENDING", "Priority", ""), held=True) == "queued"


def test_over_its_time() -> None:
    """Slurm sees a job that had `grace` to save before its time limit as FAILED."""
    assert states.word(job("FAILED"), over_time=True) == "expired"
    assert states.word(job("COMPLETED"), over_time=True) == "succeeded"


def test_each_state_of_slurm_has_a_word() -> None:
    """And only ended jobs have a word of OVER."""
    for state in JOB_STATES:
        found = states.word(job(state, nodes="" if state in WAITING else "n1"))
        assert found in states.WORDS
        if state in ENDED:
            assert found in states.OVER, state
        elif state in WAITING:
            assert found == "queued", state


def test_a_hostile_comment_is_no_word() -> None:
    """Users write comments: any text gives the word of the state."""
    for text in ("[sp1;run=99999999]", "[sp1;", json.dumps({"a": 1}), "\x1b[2J", "[sp1;run=-1;x=nan]"):
        assert states.word(job("COMPLETING", comment=text)) == "running"
