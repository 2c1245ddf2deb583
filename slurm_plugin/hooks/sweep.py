"""Directories of runs on this node whose epilog never came, because slurmd or the node died: found and removed.

For the periodic check: a pass that finds nothing old asks Slurm nothing.
"""

from __future__ import annotations

import os
import syslog
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from slurm_plugin.hooks import cleanup, node_directory

TYPE_CHECKING = False  # as in prechecks: `typing` costs a hook 3 ms
if TYPE_CHECKING:
    from typing import Any

    from slurm_plugin.slurm import Job, Slurm

OLD_S = 3600.0  # before that a directory is not asked about, and then once in that time


def sweep(site: Mapping[str, Any], node: str, door: Callable[[], Slurm], *, now: float | None = None) -> list[str]:
    """Remove the directories of runs that are over for this node, and return their names.

    A run may be here while its user has a process. Else Slurm is asked, in one question for all; without an answer
    every directory stays. `now`: seconds of the epoch.
    """
    run_directory, now = site["run_directory"], time.time() if now is None else now
    old = _old(run_directory, now - OLD_S)
    if not old:
        return []
    from slurm_plugin.errors import SlurmPluginError  # noqa: PLC0415 - most passes ask nothing

    try:
        jobs = door().jobs(sorted({_job_id(name) for name in old}))
    except SlurmPluginError as error:
        syslog.syslog(syslog.LOG_WARNING, f"old directories of runs stay: {error.one_line}")
        return []
    over = [name for name in old if is_over(jobs.get(_job_id(name)), node)]
    for name in old:
        if name in over:
            node_directory.remove(run_directory, name)
            syslog.syslog(f"removed {run_directory}/jobs/{name}: that run is over, and no epilog came")
        else:
            with suppress(FileNotFoundError):
                os.utime(f"{run_directory}/jobs/{name}", (now, now), follow_symlinks=False)
    return over


def is_over(job: Job | None, node: str) -> bool:
    """Whether a job has nothing more to do with this node: Slurm has forgotten it, it has ended, or runs elsewhere.

    One that waits may be here again at any moment; it is looked at again later.
    """
    from hostfiles import nodelist  # noqa: PLC0415 - as above
    from slurm_plugin.slurm import ENDED  # noqa: PLC0415

    return job is None or job.state in ENDED or bool(job.nodes and node not in nodelist.expand(job.nodes))


def _old(run_directory: str, before: float) -> list[str]:
    """The directories of runs that nobody has written into since then, and whose users have no process here."""
    jobs = f"{run_directory}/jobs"
    found = [
        name
        for name in node_directory.all_runs(run_directory)
        if (each := _stat(f"{jobs}/{name}")) and each.st_mtime < before
    ]
    busy = cleanup.users_of_processes() if found else set()
    return [name for name in found if not (user := _stat(f"{jobs}/{name}/user")) or user.st_uid not in busy]


def _stat(path: str) -> os.stat_result | None:
    """None where nothing is there: an epilog came after all, or a prolog was killed at its first step."""
    try:
        return os.stat(path, follow_symlinks=False)  # noqa: PTH116 - pathlib costs a hook 5 ms
    except FileNotFoundError:
        return None


def _job_id(name: str) -> int:
    return int(name.partition(".")[0])
