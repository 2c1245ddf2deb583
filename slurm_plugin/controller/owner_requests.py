"""Carry out requests of job owners as SlurmUser: raise the time limit of a running job, or make a waiting job urgent.

job_submit.lua recognises the request. It starts this process, `slurm-plugin hook asked`, with the job and the request
in SLURM_PLUGIN_ASKED. This process can see other jobs, applies the site's limits again, and changes the job. It serves
one request at a time, so that two cannot exceed a cap together. The owner's command waits for the change. A refusal is
only logged.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from prechecks import files
from slurm_plugin.errors import SlurmPluginError
from slurm_plugin.records import grant, site_settings, syslog
from slurm_plugin.slurm import Slurm, changes, connect
from slurm_plugin.slurm.calls import Patience

VARIABLE: Final = "SLURM_PLUGIN_ASKED"
LOCK: Final = "asked.lock"  # in the spool directory, which only SlurmUser may write
DEADLINE_S: Final = 10.0
LOCK_S: Final = 15.0
PATIENCE_S: Final = 60.0  # how long a slurmctld may take to restart
_REQUEST: Final = re.compile(r"([1-9][0-9]{0,9}) (?:(time) ([1-9][0-9]{0,9})|(priority) (urgent))", re.ASCII)


class RefusedError(SlurmPluginError):
    """The site does not allow what the owner asks for."""


def main() -> int:
    """Serve one request. Always return 0, because nothing reads the exit code."""
    if Path(site_settings.site_root(), site_settings.KILL_SWITCH).exists():
        return 0
    site, request = site_settings.read(site_settings.site_root()), os.environ.get(VARIABLE, "")
    spool = os.open(site["spool_directory"], files.DIRECTORY & ~os.O_NOFOLLOW)
    try:
        with files.Locked(spool, LOCK, LOCK_S):
            door = connect(site["slurm_bin"], deadline_s=DEADLINE_S)
            # Repeat all of it: after a restart of slurmctld the job may have another grant than the one that was read.
            said = Patience(PATIENCE_S).ask(lambda: serve(request, site, door), repeatable=True)
        syslog.syslog(syslog.LOG_INFO, said)
    except BlockingIOError:
        syslog.syslog(syslog.LOG_WARNING, f"request {request!r} of a job's owner: other requests take too long")
    except SlurmPluginError as error:
        syslog.syslog(syslog.LOG_WARNING, f"request {request!r} of a job's owner: {error.one_line}")
    return 0


def serve(request: str, site: Mapping[str, Any], door: Slurm) -> str:
    """Carry out a request and return what was done. Raise RefusedError, or SlurmError."""
    found = _REQUEST.fullmatch(request)
    if not found:
        raise RefusedError("it is malformed")
    job_id, minutes = int(found[1]), int(found[3] or 0)
    return _longer(door, job_id, minutes, site) if found[2] else _urgent(door, job_id, site.get("priorities", {}))


def _longer(door: Slurm, job_id: int, minutes: int, site: Mapping[str, Any]) -> str:
    """Raise the limit of a running job. The grant keeps the limit before the first raise."""
    job, limit_s = door.job(job_id), door.queueing([job_id])[job_id].time_limit_s
    given = grant.parse(job.admin_comment)
    if job.state != "RUNNING" or limit_s is None:
        raise RefusedError(f"job {job_id} is {job.state}, or has no limit")
    if given is None:
        raise RefusedError(f"job {job_id} is none of slurm_plugin: it has no grant")
    first = given.time or limit_s // 60
    most = first + int(site.get("extend_time_s", 0)) // 60
    if minutes > most:
        raise RefusedError(f"job {job_id} began with {first} minutes and may have {most} (extend_time)")
    if any(Path(site["spool_directory"]).glob(f"{job_id}.*.json")):  # the worker may be about to write the grant, too
        raise RefusedError(f"a restart of job {job_id} is being counted; ask again in a moment")
    comment = grant.written(job.admin_comment, replace(given, time=first))
    door.update_job(job_id, TimeLimit=str(minutes), AdminComment=comment)
    return f"job {job_id}: the time limit is raised from {limit_s // 60} to {minutes} minutes for its owner"


def _urgent(door: Slurm, job_id: int, priorities: changes.Priorities) -> str:
    """Make a waiting job urgent, if its user and account may have one more."""
    return f"job {job_id}: {changes.change_priority(door, job_id, changes.URGENT, priorities, wait=False)}"
