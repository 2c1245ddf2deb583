"""EpilogSlurmctld (SlurmUser, on the controller, at the end of every run of a job of ours): spool it, wake the worker.

At the end of any other job too, while the spool holds entries: a worker may have been killed with slurmctld.

The job stays COMPLETING while this runs, so it asks Slurm nothing: the worker does, in one question for all jobs.
"""

import os
from pathlib import Path

from hostfiles import nodelist
from slurm_plugin import compiled, token
from slurm_plugin.after_run import Ended
from slurm_plugin.hooks import spool, worker


def main() -> int:
    """Write one entry for a run whose job may go on; leave a worker behind where there is work for it."""
    site, environ = compiled.read(compiled.site_root()), os.environ
    asked = token.find(environ.get("SLURM_JOB_COMMENT", ""))
    directory = Path(site["spool_directory"])
    if asked is not None and asked.retries:
        nodes = tuple(nodelist.expand(environ["SLURM_JOB_NODELIST"]))
        told = int(environ.get("SLURM_JOB_RESTART_COUNT", "0"))
        spool.put(directory, Ended(int(environ["SLURM_JOB_ID"]), told, nodes))
    elif not any(directory.glob("[0-9]*.json")):
        return 0
    worker.wake(directory, site)
    return 0
