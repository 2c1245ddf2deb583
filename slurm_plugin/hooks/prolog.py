"""Prolog (root, on every node of a job): check the node, publish the report, take a bad node out."""

from __future__ import annotations

import os
import syslog
import time
from collections.abc import Mapping

import prechecks
from hostfiles import nodelist
from prechecks import quickjson
from slurm_plugin import compiled, token
from slurm_plugin.hooks import NODE_IS_BAD, node_directory

TYPE_CHECKING = False  # as in prechecks: `typing` costs every node 3 ms
if TYPE_CHECKING:
    from typing import Any


def main() -> int:
    """Run the checks that this job asked for, that its partition gets, and that the site makes mandatory."""
    site, environ = compiled.read(compiled.site_root()), os.environ
    syslog.openlog("slurm_plugin")
    if stale := compiled.stale(site):
        syslog.syslog(syslog.LOG_WARNING, stale)
    comment = environ.get("SLURM_JOB_COMMENT", "")
    asked = token.find(comment)
    if asked is None and "[sp1;" in comment:
        syslog.syslog(syslog.LOG_NOTICE, f"job {environ['SLURM_JOB_ID']}: its comment holds no token that can be read")
    asked = asked or token.Token()
    job_id, restart = int(environ["SLURM_JOB_ID"]), int(environ.get("SLURM_JOB_RESTART_COUNT", "0"))
    directory, gid = node_directory.name(job_id, restart), int(environ["SLURM_JOB_GID"])
    node_directory.create(site["run_directory"], directory, uid=int(environ["SLURM_JOB_UID"]), gid=gid)
    settings = site["prechecks"]
    whole = asked.retries or environ.get("SLURM_JOB_PARTITION", "") in site.get("check_partitions", ())
    items = None if whole else settings["mandatory"]
    if items == []:
        return 0
    context = _context(asked, site, environ)
    verdicts = prechecks.run(context, settings, items=items)
    report = prechecks.Report(context.node, job_id, context.hook, time.time(), verdicts)
    try:
        node_directory.write(site["run_directory"], directory, node_directory.CONTEXT, _remembered(context), gid=gid)
        node_directory.write(site["run_directory"], directory, node_directory.REPORT, report.to_json(), gid=gid)
    except OSError as error:  # a full /run must not keep a bad node in service
        syslog.syslog(syslog.LOG_ERR, f"the report of job {job_id} cannot be written: {error}")
    for verdict in verdicts:
        if verdict.verdict != prechecks.SKIPPED:
            syslog.syslog(prechecks.line(context.node, verdict))
    if site["metrics_directory"]:
        from slurm_plugin.hooks import published  # noqa: PLC0415 - many sites have none

        published.metrics(site, report)
    reason = prechecks.reason(verdicts, job_id)
    if not reason:
        return 0
    from slurm_plugin.hooks import draining, ending  # noqa: PLC0415 - a passing prolog asks Slurm nothing
    from slurm_plugin.slurm import connect  # noqa: PLC0415

    door = connect(site["slurm_bin"], deadline_s=5.0)
    if not draining.drain(door, site, context, reason):
        return 0
    whole = int(environ.get("SLURM_HET_JOB_ID") or job_id)  # of a heterogeneous job all parts end
    return 0 if ending.ended(door, whole, context.node, reason) else NODE_IS_BAD  # for which Slurm requeues the job


def _context(asked: token.Token, site: Mapping[str, Any], environ: Mapping[str, str]) -> prechecks.Context:
    """What the checks may know of the job; 22.05 calls the node list SLURM_NODELIST, later ones SLURM_JOB_NODELIST."""
    hosts = environ.get("SLURM_JOB_NODELIST") or environ.get("SLURM_NODELIST", "")
    gpus = environ.get("SLURM_JOB_GPUS", "")
    auto = environ.get("SLURM_JOB_PARTITION", "") in site["infiniband_partitions"]
    return prechecks.Context(
        hook="prolog",
        node=environ["SLURMD_NODENAME"],
        hosts=tuple(nodelist.expand(hosts)) if hosts else (),
        gpus=tuple(int(gpu) for gpu in gpus.split(",") if gpu.isdigit()),
        infiniband=auto if asked.infiniband == "auto" else asked.infiniband == "yes",
        partition=environ.get("SLURM_JOB_PARTITION", ""),
    )


def _remembered(context: prechecks.Context) -> str:
    """What the epilog needs to look at the same things again."""
    return quickjson.dumps({"node": context.node, "gpus": context.gpus, "infiniband": context.infiniband})
