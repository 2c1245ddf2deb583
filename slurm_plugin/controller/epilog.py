"""EpilogSlurmctld (SlurmUser, on the controller, when a run of a job has ended): write a spool entry, wake the worker.

The `sh` guard has written the entry before, so that it survives a kill of this process. Here it is written again, so
that it also survives a crash of the machine. The hook also wakes the worker when any other job ends and the spool has
entries: a worker may have died with slurmctld.

The job stays COMPLETING while this hook runs, so the hook sends Slurm no request. The worker asks once for all jobs.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from hostfiles import nodelist
from prechecks.child import detach
from slurm_plugin.controller import requeue_worker
from slurm_plugin.controller.queue_limits import Policy
from slurm_plugin.controller.requeue_policy import Ended
from slurm_plugin.controller.restart_metrics import CountingDoor
from slurm_plugin.errors import SlurmPluginError
from slurm_plugin.records import site_settings, syslog, token
from slurm_plugin.slurm import Slurm, connect


def main() -> int:
    """Write an entry for a run whose job may go on. Start a worker if the spool has entries."""
    site, environ = site_settings.read(site_settings.site_root()), os.environ
    request = token.find(environ.get("SLURM_JOB_COMMENT", ""))
    directory = Path(site["spool_directory"])
    if request is not None and request.retries:
        nodes = tuple(nodelist.expand(environ["SLURM_JOB_NODELIST"]))
        told = int(environ.get("SLURM_JOB_RESTART_COUNT", "0"))
        ended = Ended(int(environ["SLURM_JOB_ID"]), told, nodes, kept=site_settings.RESERVATION_MADE in environ)
        try:
            requeue_worker.put(directory, ended)
        except OSError as error:  # a full disk: the worker finds the job by its restart count
            requeue_worker.remove(directory, ended)  # what the guard could write of it
            syslog.syslog(syslog.LOG_ERR, f"the end of job {environ['SLURM_JOB_ID']} cannot be spooled: {error}")
            wake(directory, site, look=True)
            return 0
    elif not any(directory.glob("[0-9]*.json")):
        return 0
    wake(directory, site)
    return 0


def wake(directory: Path, site: Mapping[str, Any], *, look: bool = False) -> None:
    """Start a worker. Return when it has left this process group and closed the hook's standard files.

    `look`: the end of a run could not be spooled.
    """
    detach(lambda: _work(directory, site, look=look))


def _work(directory: Path, site: Mapping[str, Any], *, look: bool) -> None:
    os.chdir("/")
    try:
        door = connect(site["slurm_bin"], deadline_s=10.0)
        if not site["metrics_directory"]:
            requeue_worker.serve(directory, door, Policy.of(site["recovery"]), look=look)
        else:
            counting = CountingDoor(door, site)
            requeue_worker.serve(directory, cast("Slurm", counting), Policy.of(site["recovery"]), look=look)
            with suppress(SlurmPluginError):  # the work is done
                counting.watch()
    except BaseException as error:  # noqa: BLE001 - no caller is left to report it
        syslog.syslog(syslog.LOG_ERR, f"the worker failed: {error!r}; the next job that ends starts another")
