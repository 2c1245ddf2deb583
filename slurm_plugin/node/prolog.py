"""Prolog (root, on every node of a job): check the node, publish the report, drain a bad node."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

import prechecks
from hostfiles import nodelist
from prechecks import quickjson
from prechecks.measure import nvidia
from slurm_plugin.node import hook
from slurm_plugin.records import node_directory, site_settings, syslog, token

TYPE_CHECKING = False  # as in prechecks: `typing` costs every node 3 ms
if TYPE_CHECKING:
    from typing import Any

GPU_PROCESSES = "gpu-processes"
END_TIMES = 8  # most times that leftover processes are ended before a job


def main() -> int:
    """Check the node. If the job may start, make its user's directory for copies of data."""
    site, environ = site_settings.read(site_settings.site_root()), os.environ
    if site["gpu_job_map"]:
        from slurm_plugin.node import gpu_jobs  # noqa: PLC0415 - many sites have none

        gpu_jobs.add(site, environ)
        if _is_only_mapped(site, environ):
            return 0
    code, uid = _check(site, environ), int(environ["SLURM_JOB_UID"])
    if not code and uid and (copies := site["stage_in"]["directory"]):
        from slurm_plugin.node import staging_directory  # noqa: PLC0415 - many sites have none

        staging_directory.make(copies, uid, int(environ["SLURM_JOB_GID"]), site["prechecks"]["state"])
    return code


def _is_only_mapped(site: Mapping[str, Any], environ: Mapping[str, str]) -> bool:
    """Return whether the hook runs for the job's GPUs alone, because nothing requests checks for the job."""
    requested = token.OPENING in environ.get("SLURM_JOB_COMMENT", "") or site["prechecks"]["mandatory"]
    return not requested and environ.get("SLURM_JOB_PARTITION", "") not in site["check_partitions"]


def _check(site: Mapping[str, Any], environ: Mapping[str, str]) -> int:
    """Run the checks that the job, its partition or the site requests. Return the exit code of the hook."""
    if stale := site_settings.stale(site):
        syslog.syslog(syslog.LOG_WARNING, stale)
    comment = environ.get("SLURM_JOB_COMMENT", "")
    request = token.find(comment)
    if request is None and token.OPENING in comment:
        syslog.syslog(syslog.LOG_NOTICE, f"job {environ['SLURM_JOB_ID']}: its comment contains no valid token")
    request = request or token.Token()
    job_id, restart = int(environ["SLURM_JOB_ID"]), int(environ.get("SLURM_JOB_RESTART_COUNT", "0"))
    directory, gid = node_directory.name(job_id, restart), int(environ["SLURM_JOB_GID"])
    run_directory, uid = site["run_directory"], int(environ["SLURM_JOB_UID"])
    try:
        node_directory.create(run_directory, directory, uid=uid, gid=gid)
        if not node_directory.separate(run_directory, directory, uid=uid, gid=gid):
            syslog.syslog(
                syslog.LOG_NOTICE,
                f"job {job_id}: no tmpfs can be mounted, so its user's files are in {run_directory} itself",
            )
    except OSError as error:  # a user can fill /run: check the node anyway
        syslog.syslog(syslog.LOG_ERR, f"the directory of job {job_id} cannot be made: {error}")
    settings = site["prechecks"]
    whole = request.retries or environ.get("SLURM_JOB_PARTITION", "") in site["check_partitions"]
    items = None if whole else settings["mandatory"]
    if items == []:
        return 0
    context = _context(request, site, environ)
    verdicts = _without_leftovers(prechecks.run(context, settings, items=items), context, site, job_id)
    report = prechecks.Report(context.node, job_id, context.hook, time.time(), verdicts)
    try:
        node_directory.write(run_directory, directory, node_directory.CONTEXT, _context_file(context), gid=gid)
        node_directory.write(run_directory, directory, node_directory.REPORT, report.to_json(), gid=gid)
    except OSError as error:  # a user can fill /run: drain a bad node anyway
        syslog.syslog(syslog.LOG_ERR, f"the report of job {job_id} cannot be written: {error}")
    for verdict in verdicts:
        if verdict.verdict != prechecks.SKIPPED:
            syslog.syslog(prechecks.line(context.node, verdict))
    hook.write_metrics(site, report)
    reason = prechecks.reason(verdicts, job_id)
    if not reason:
        return 0
    from slurm_plugin.node import draining, job_end  # noqa: PLC0415 - a passing prolog asks Slurm nothing
    from slurm_plugin.slurm import connect  # noqa: PLC0415

    door = connect(site["slurm_bin"], deadline_s=5.0)
    if not draining.drain(door, site, context, reason):
        return 0
    leader = int(environ.get("SLURM_HET_JOB_ID") or job_id)  # end all components of a heterogeneous job
    return 0 if job_end.end_job(door, leader, context.node, reason) else hook.NODE_IS_BAD  # Slurm requeues the job


def _without_leftovers(
    verdicts: tuple[prechecks.Verdict, ...], context: prechecks.Context, site: Mapping[str, Any], job_id: int
) -> tuple[prechecks.Verdict, ...]:
    """End the processes that ended jobs left on the job's GPUs, and check these again: a user is no fault of the node.

    What SIGKILL does not end is one. A process that may belong to another job keeps this one away, and so do processes
    that come again and again. A verdict names only as many processes as fit into it.
    """
    bad = next((each for each in verdicts if each.item == GPU_PROCESSES and each.failed), None)
    if bad is None or bad.problem != prechecks.NODE_PROBLEM or site["dry_run"]:
        return verdicts
    from slurm_plugin.node import cleanup  # noqa: PLC0415 - a passing prolog ends nothing
    from slurm_plugin.slurm import connect  # noqa: PLC0415

    slurm_bin, now, ended = site["slurm_bin"], bad, set[int]()
    for _ in range(END_TIMES):
        words = str(now.value).partition(":")[0].split()  # as the check writes them: the pids, then the names
        pids = [int(word) for word in words if word.isdecimal()]
        if not ended.isdisjoint(pids):
            break
        done = cleanup.end_processes(site, pids, job_id, context.node, lambda: connect(slurm_bin, deadline_s=5.0))
        if done is False:
            break
        if done is None:
            now = now._replace(problem=prechecks.JOB_PROBLEM)
            break
        ended.update(pids)
        (now,) = prechecks.run(context, site["prechecks"], items=[GPU_PROCESSES])
        if not (now.failed and now.problem == prechecks.NODE_PROBLEM):
            break
    else:
        now = now._replace(problem=prechecks.JOB_PROBLEM)
    return tuple(now if each is bad else each for each in verdicts)


def _context(request: token.Token, site: Mapping[str, Any], environ: Mapping[str, str]) -> prechecks.Context:
    """Return the context of the checks. 22.05 sets SLURM_NODELIST, later releases SLURM_JOB_NODELIST."""
    hosts = environ.get("SLURM_JOB_NODELIST") or environ.get("SLURM_NODELIST", "")
    auto = environ.get("SLURM_JOB_PARTITION", "") in site["infiniband_partitions"]
    return prechecks.Context(
        hook="prolog",
        node=environ["SLURMD_NODENAME"],
        hosts=tuple(nodelist.expand(hosts)) if hosts else (),
        gpus=nvidia.all_minors() if nvidia.has_mig(environ) else nvidia.of_job(environ, "SLURM_JOB_GPUS"),
        infiniband=auto if request.infiniband == "auto" else request.infiniband == "yes",
        partition=environ.get("SLURM_JOB_PARTITION", ""),
        requested=request.infiniband == "yes" and not auto,
    )


def _context_file(context: prechecks.Context) -> str:
    """Return the context for the epilog as JSON, without the checks that only the job's user requested."""
    infiniband = context.infiniband and not context.requested
    return quickjson.dumps({"node": context.node, "gpus": context.gpus, "infiniband": infiniband})
