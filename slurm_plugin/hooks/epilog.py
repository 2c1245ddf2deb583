"""Epilog (root, on every node of a job): look at the hardware again, take a bad node out, clean up.

The node takes no other job until this ends, so a job that runs again at once cannot land on a node found bad here.
"""

import os
import syslog
import time
from typing import Any

import prechecks
from prechecks import quickjson
from slurm_plugin import compiled
from slurm_plugin.hooks import cleanup, draining, node_directory, published
from slurm_plugin.slurm import connect


def main() -> int:
    """Check, drain, remove the job's directories on this node. Never exits 75: the drain says all."""
    site, job_id = compiled.read(compiled.site_root()), int(os.environ["SLURM_JOB_ID"])
    syslog.openlog("slurm_plugin")
    directories = node_directory.of_job(site["run_directory"], job_id)
    try:
        # First: what the job has left is no reason to drain its node.
        cleanup.after_job(site, job_id, os.environ, lambda: connect(site["slurm_bin"], deadline_s=5.0))
    finally:
        try:
            if directories:
                _recheck(site, directories[-1], job_id)
        finally:
            for directory in directories:
                node_directory.remove(site["run_directory"], directory)
    return 0


def _recheck(site: dict[str, Any], directory: str, job_id: int) -> None:
    """The checks of the prolog whose failure is the node's own; nothing where the prolog ran none."""
    try:
        with open(f"{site['run_directory']}/jobs/{directory}/{node_directory.CONTEXT}", encoding="utf-8") as file:  # noqa: PTH123
            facts = quickjson.loads(file.read())
    except FileNotFoundError:
        return
    context = prechecks.Context("epilog", facts["node"], (), tuple(facts["gpus"]), facts["infiniband"])
    verdicts = prechecks.run(context, site["prechecks"], items=prechecks.NODE_ITEMS)
    published.metrics(site, prechecks.Report(context.node, job_id, context.hook, time.time(), verdicts))
    for verdict in prechecks.node_problems(verdicts):
        syslog.syslog(syslog.LOG_ERR, prechecks.line(context.node, verdict))
    reason = prechecks.reason(verdicts, job_id)
    if reason:
        draining.drain(connect(site["slurm_bin"], deadline_s=5.0), site, context, reason)
