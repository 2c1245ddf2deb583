"""End a job that Slurm may not requeue, on a bad node: the prolog cancels the job and exits 0.

If the prolog exited non-zero, slurmd would ask slurmctld to end the job. If the job has already ended, because another
node's prolog failed too or the batch script could not be started, slurmd treats slurmctld's answer as no answer. It
then asks again every 15 s until slurmctld has forgotten the job or slurmd is restarted. Each time slurmctld drains the
node, even after an administrator has resumed it (_notify_result_rpc_prolog in src/slurmd/slurmd/req.c, on 22.05, 24.11
and 26.05).
"""

import time
from dataclasses import replace

from prechecks.report import JOBS, OURS
from slurm_plugin.errors import SlurmPluginError
from slurm_plugin.records import grant, syslog
from slurm_plugin.slurm import ENDED, Slurm, SlurmAwayError

SLOW_S = 3.0  # if the first requests took longer, slurmctld is busy: do not notify the user of the job
HEARD_S = 1.0  # wait before exit 0, so that this node's slurmd learns of the end and starts no batch script


def end_job(door: Slurm, job_id: int, node: str, reason: str) -> bool:
    """End the job if a failed prolog would end it. The node is out of service; `reason` says what failed.

    Return whether the job has ended. If Slurm would requeue it or does not answer, return False: the prolog must fail.
    """
    begun = time.monotonic()
    try:
        if door.may_requeue(job_id):
            return False
        job = door.job(job_id)
        if job.state in ENDED or job.state == "COMPLETING":  # another node's prolog ended it
            return True
        why = f"{node}: {JOBS.sub('', reason.removeprefix(OURS))}"
        if time.monotonic() - begun < SLOW_S:  # else save a request
            _notify(door, job_id, job.admin_comment, why)
        _cancel(door, job_id)
    except SlurmPluginError as error:
        syslog.syslog(syslog.LOG_ERR, f"job {job_id} could not be ended, its prolog fails: {error.one_line}")
        return False
    syslog.syslog(f"job {job_id}: ended, it may not be requeued: {why}")
    time.sleep(HEARD_S)
    return True


def _cancel(door: Slurm, job_id: int) -> None:
    """Cancel the job. Ignore a missing answer if slurmctld may have the request: without slurmctld no job starts."""
    try:
        door.cancel(job_id)
    except SlurmAwayError as error:
        if not error.sent:
            raise


def _notify(door: Slurm, job_id: int, admin_comment: str, why: str) -> None:
    """Write the reason into the grant, and notify an interactive user. Only log an error: the job ends anyway."""
    given = grant.parse(admin_comment)
    try:
        if given and not given.left:
            fresh = replace(given, last=f"{grant.NO_MORE} after {why}")
            door.update_job(job_id, AdminComment=grant.written(admin_comment, fresh))
        door.notify(job_id, f"{OURS}{why}")
    except SlurmPluginError as error:
        syslog.syslog(syslog.LOG_WARNING, f"job {job_id} was not told why it ends: {error.one_line}")
