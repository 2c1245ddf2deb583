"""The state of a job in one word for people. Slurm's own state stays beside it.

The words are those of the training platforms that users come from: queued, running, error, stopped, expired and
succeeded, and two for what this plugin adds: restarting and held. Standard library only.
"""

from collections.abc import Mapping
from typing import Final

from slurm_plugin.records import grant, token
from slurm_plugin.slurm import HELD, HELD_BY_LIMIT, WAITING, Job

QUEUED: Final = "queued"
RUNNING: Final = "running"
RESTARTING: Final = "restarting"  # between two runs: it was requeued, or its supervisor has asked for a requeue
HELD_WORD: Final = "held"  # it waits for a person: held in the queue, or for debugging on its nodes
ERROR: Final = "error"
STOPPED: Final = "stopped"  # somebody ended it, or it lost its nodes to another job
EXPIRED: Final = "expired"  # over its time
SUCCEEDED: Final = "succeeded"
WORDS: Final = (QUEUED, RUNNING, RESTARTING, HELD_WORD, ERROR, STOPPED, EXPIRED, SUCCEEDED)
OVER: Final = frozenset({ERROR, STOPPED, EXPIRED, SUCCEEDED})

_HOLDS: Final = (*HELD, HELD_BY_LIMIT, "JobHoldMaxRequeue")  # how the reason of a job in the queue begins
_STATES: Final[Mapping[str, str]] = {  # of slurm.parse.JOB_STATES; the rest depends on more than the state
    "BOOT_FAIL": ERROR,
    "CANCELLED": STOPPED,
    "COMPLETED": SUCCEEDED,
    "DEADLINE": EXPIRED,
    "FAILED": ERROR,
    "LAUNCH_FAILED": ERROR,
    "NODE_FAIL": ERROR,
    "OUT_OF_MEMORY": ERROR,
    "PREEMPTED": STOPPED,
    "RECONFIG_FAIL": ERROR,
    "REQUEUED": RESTARTING,
    "RESV_DEL_HOLD": HELD_WORD,
    "REVOKED": STOPPED,  # another cluster of the federation runs it
    "TIMEOUT": EXPIRED,
}


def word(job: Job, *, held: bool = False, over_time: bool = False) -> str:
    """Return one of WORDS for a job.

    `held`: whether the supervisor holds the running job for debugging (`hold.json`). `over_time`: whether its last
    attempt ended because its time was over (`history.is_over_time`). A value of the job that another
    program has cut off or changed never raises.
    """
    if job.state in WAITING or job.state == "REQUEUE_FED":
        return _waiting(job)
    if job.state in _STATES:
        if job.state == "FAILED" and over_time:
            return EXPIRED
        return ERROR if job.state == "CANCELLED" and _gave_up(job) else _STATES[job.state]
    if held:
        return HELD_WORD
    if not job.nodes:  # a state of a later release
        return QUEUED
    return RESTARTING if _restarts(job) else RUNNING


def _waiting(job: Job) -> str:
    """Return the word for a job in the queue."""
    if job.reason.startswith(_HOLDS):
        given = grant.parse(job.admin_comment) if job.reason == HELD_BY_LIMIT else None
        return RESTARTING if given and given.left else HELD_WORD  # the plugin's worker releases it in a few seconds
    return RESTARTING if job.restarts else QUEUED


def _restarts(job: Job) -> bool:
    """Return whether a job with nodes starts again, or ends to be requeued."""
    if job.state == "CONFIGURING":
        return job.restarts > 0
    asked = token.find(job.comment) if job.state == "COMPLETING" else None
    return asked is not None and asked.mark is not None and asked.mark.run == job.restarts


def _gave_up(job: Job) -> bool:
    """Return whether the plugin cancelled the job because no restart was left."""
    given = grant.parse(job.admin_comment)
    return given is not None and given.last.startswith(grant.NO_MORE)
