"""A job on a bad node that Slurm may not put back into the queue: its prolog ends it, and exits 0.

At a non-zero exit slurmd would ask slurmctld to end such a job. Where that has ended it already, because another node's
prolog failed too or the batch script could not be started, slurmd takes the answer for none and asks again every 15 s,
until slurmctld has forgotten the job or slurmd is restarted; and each time its node is set to DRAIN, after an
administrator has resumed it, too (_notify_result_rpc_prolog in src/slurmd/slurmd/req.c, on 22.05, 24.11 and 26.05).
"""

import syslog
import time
from dataclasses import replace

from prechecks.report import JOBS, OURS
from slurm_plugin import grant
from slurm_plugin.errors import SlurmPluginError
from slurm_plugin.slurm import ENDED, Slurm, SlurmAwayError

TELLING_S = 3.0  # of the questions before: where they took longer, the end is not told before it is made
HEARD_S = 1.0  # until this node's slurmd has heard of the end, and starts no batch script behind a prolog that exits 0


def ended(door: Slurm, job_id: int, node: str, reason: str) -> bool:
    """End the job of a node that is out of service, for `reason`, where a failed prolog would end it; whether it did.

    It did not where Slurm puts the job back into the queue, or does not answer: then the prolog has to fail.
    """
    begun = time.monotonic()
    try:
        if door.may_requeue(job_id):
            return False
        job = door.job(job_id)
        if job.state in ENDED or job.state == "COMPLETING":  # by the prolog of another node
            return True
        why = f"{node}: {JOBS.sub('', reason.removeprefix(OURS))}"
        if time.monotonic() - begun < TELLING_S:  # else slurmctld is busy: one question less
            _say(door, job_id, job.admin_comment, why)
        _cancel(door, job_id)
    except SlurmPluginError as error:
        syslog.syslog(syslog.LOG_ERR, f"job {job_id} could not be ended, its prolog fails: {error.one_line}")
        return False
    syslog.syslog(f"job {job_id}: ended, it may not be requeued: {why}")
    time.sleep(HEARD_S)
    return True


def _cancel(door: Slurm, job_id: int) -> None:
    """End it. What slurmctld was sent and has not answered in time will be done: nothing starts without it either."""
    try:
        door.cancel(job_id)
    except SlurmAwayError as error:
        if not error.sent:
            raise


def _say(door: Slurm, job_id: int, admin_comment: str, why: str) -> None:
    """Tell why, in the grant and to who waits; what cannot be told keeps nothing from ending."""
    given = grant.parse(admin_comment)
    try:
        if given and not given.left:
            fresh = replace(given, last=f"no restart left after {why}")
            door.update_job(job_id, AdminComment=grant.written(admin_comment, fresh))
        door.notify(job_id, f"{OURS}{why}")
    except SlurmPluginError as error:
        syslog.syslog(syslog.LOG_WARNING, f"job {job_id} was not told why it ends: {error.one_line}")
