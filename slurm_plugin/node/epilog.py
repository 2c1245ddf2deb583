"""Epilog (root, on every node of a job): check the hardware again, drain a bad node, clean up.

A requeued job starts only after all its epilogs have ended, so it cannot get a node that fails here.
"""

import os
import time
from typing import Any

import prechecks
from prechecks import quickjson
from slurm_plugin.node import cleanup, draining, gpu_jobs, hook
from slurm_plugin.records import node_directory, site_settings, syslog
from slurm_plugin.slurm import connect


def main() -> int:
    """Clean up, check, drain, remove the job's directories on this node. Never return 75: the drain is enough."""
    site, job_id = site_settings.read(site_settings.site_root()), int(os.environ["SLURM_JOB_ID"])
    gpu_jobs.remove(site, job_id)
    directories = node_directory.of_job(site["run_directory"], job_id)
    if site["gpu_job_map"] and not directories:  # the prolog ran only for the job's GPUs
        return 0
    try:
        # Clean up first: leftover files of the job must not drain the node.
        cleanup.after_job(site, job_id, os.environ, lambda: connect(site["slurm_bin"], deadline_s=5.0))
    finally:
        try:
            if directories:
                _recheck(site, directories[-1], job_id)
        finally:
            for directory in directories:
                if not node_directory.remove(site["run_directory"], directory):
                    syslog.syslog(syslog.LOG_WARNING, f"the directory of run {directory} is not removed completely")
    return 0


def _recheck(site: dict[str, Any], directory: str, job_id: int) -> None:
    """Run the checks whose failure is the node's fault (NODE_ITEMS), if the prolog ran any check."""
    try:
        with open(f"{site['run_directory']}/jobs/{directory}/{node_directory.CONTEXT}", encoding="utf-8") as file:  # noqa: PTH123
            facts = quickjson.loads(file.read())
    except FileNotFoundError:
        return
    context = prechecks.Context("epilog", facts["node"], (), tuple(facts["gpus"]), facts["infiniband"])
    verdicts = prechecks.run(context, site["prechecks"], items=prechecks.NODE_ITEMS)
    hook.write_metrics(site, prechecks.Report(context.node, job_id, context.hook, time.time(), verdicts))
    for verdict in prechecks.node_problems(verdicts):
        syslog.syslog(syslog.LOG_ERR, prechecks.line(context.node, verdict))
    reason = prechecks.reason(verdicts, job_id)
    if reason:
        draining.drain(connect(site["slurm_bin"], deadline_s=5.0), site, context, reason)
