"""Start the process that shares a job (`share.serve`) beside its supervisor, and end it with the run."""

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from slurm_plugin.records import requests, site_settings
from slurm_plugin.records.job_plan import JobPlan
from slurm_plugin.supervisor.guard.processes import SPARED
from slurm_plugin.supervisor.log import say
from slurm_plugin.supervisor.run import Run

END_S: Final = 5.0  # the last look may wait for a file server


@contextmanager
def share_process(plan: JobPlan, site: Mapping[str, Any], run: Run, directory: Path, cluster: str) -> Iterator[None]:
    """Share the job as its plan says and its site allows. Without `share` in the plan start nothing."""
    process = _started(plan, site, run, directory, cluster) if plan.share_access else None
    try:
        yield
    finally:
        if process and process.stdin:
            with suppress(OSError):
                process.stdin.close()  # it sees the end of its stdin
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()


def words(plan: JobPlan, run: Run, directory: Path, cluster: str) -> list[str]:
    """Return the arguments of `slurm-plugin` that share a job."""
    named = {"directory": directory, "job": run.job_id, "restart": run.restart, "cluster": cluster}
    named |= {"group": plan.share_group, "access": plan.share_access, "supervisor": os.getpid()}
    return ["job", "share", *(f"--{name}={value}" for name, value in named.items())]


def _started(
    plan: JobPlan, site: Mapping[str, Any], run: Run, directory: Path, cluster: str
) -> "subprocess.Popen[bytes] | None":
    """Start the process. Return None if the site allows no sharing, or if the process cannot be started."""
    most = site.get("share", requests.NONE)
    if requests.at_most(plan.share_access, most) != plan.share_access:
        say(f"share asked for {plan.share_access}, the site allows {most}")
        plan = plan._replace(share_access=most)
        if most == requests.NONE:
            return None
    command = [*site_settings.plugin_command(), *words(plan, run, directory, cluster)]
    try:
        return subprocess.Popen(command, stdin=subprocess.PIPE, env={**os.environ, **SPARED}, start_new_session=True)
    except OSError as error:
        say(f"the job is not shared: {command[0]}: {error.strerror}")
        return None
