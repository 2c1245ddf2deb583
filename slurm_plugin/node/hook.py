"""Run one of Slurm's hooks: prolog, epilog, EpilogSlurmctld or HealthCheckProgram.

Hooks run as root or SlurmUser, from the deployed copy of this code, and read strings that users choose. The bash guard
that starts a hook turns every exit code but 0 and 75 into 0.

The last periodic report of this node is `<run directory>/report.json`, owned by root and readable by all. The hooks on
nodes write metrics for the textfile collector of Prometheus' node_exporter, one file for each hook.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping

from prechecks import files
from slurm_plugin.records import metrics, site_settings, syslog

TYPE_CHECKING = False  # as in prechecks: `typing` costs every node 3 ms
if TYPE_CHECKING:
    from typing import Any

    from prechecks import Report

REPORT = "report.json"
NODE_IS_BAD = 75  # the only exit code of a hook after which Slurm drains the node
HOOKS = {
    "prolog": "slurm_plugin.node.prolog",
    "epilog": "slurm_plugin.node.epilog",
    "epilog_slurmctld": "slurm_plugin.controller.epilog",
    "asked": "slurm_plugin.controller.owner_requests",  # from job_submit.lua
    "periodic": "slurm_plugin.node.periodic",
}


def main(args: list[str]) -> int:
    """Run the hook with this name. Log an exception, then raise it: Python prints a traceback and exits with 1."""
    if len(args) != 1 or args[0] not in HOOKS:
        raise SystemExit(f"hook {' '.join(args)!r} is unknown; there are: {', '.join(HOOKS)}")
    try:
        _refuse_exposed_files()
        return _run(args[0])
    except Exception as error:
        _log(args[0], error)  # slurmd discards a hook's stderr
        raise


def _run(hook: str) -> int:
    """Run a hook. Count the run, also if it raises."""
    began, result = time.monotonic(), metrics.ERROR
    try:
        code: int = __import__(HOOKS[hook], fromlist=["main"]).main()  # as in slurm_plugin.__main__
        result = metrics.BAD_NODE if code == NODE_IS_BAD else metrics.OK
    finally:
        try:
            site = site_settings.read(site_settings.site_root())
            metrics.hook_ran(site, hook, result, time.monotonic() - began)
        except (OSError, ValueError):  # no settings: the hook has failed for the same reason
            pass
        except Exception as error:  # noqa: BLE001 - it must not replace the hook's own result
            _log(hook, error)
    return code


def _refuse_exposed_files() -> None:
    """Raise PermissionError if a user other than root can change the code, the settings or a directory above them."""
    root = site_settings.site_root()
    # argv[0]: the path of the zip in the guard, which may be a link.
    if exposed := files.exposed(sys.argv[0], f"{root}/{site_settings.ARCHIVE}", f"{root}/{site_settings.FILE}"):
        mend = f"chown root:root {exposed} && chmod go-w {exposed}"
        raise PermissionError(f"others than root can change {exposed}; run: {mend}")


def _log(hook: str, error: Exception) -> None:
    from prechecks.verdict import one_line  # noqa: PLC0415 - only a failing hook needs it

    syslog.syslog(syslog.LOG_ERR, one_line(f"the {hook} hook: {type(error).__name__}: {error}"))


def write_report(site: Mapping[str, Any], report: Report) -> None:
    """Write this node's last periodic report into the run directory, which root must own. Only log an error."""
    path = site["run_directory"]
    try:
        with files.Opened(files.open_directory(path)) as directory:
            files.replace(REPORT, report.to_json(), directory=directory)
    except OSError as error:
        syslog.syslog(syslog.LOG_ERR, f"{path}/{REPORT} cannot be written: {error}")


def write_metrics(site: Mapping[str, Any], report: Report) -> None:
    """Write the metrics of a report, if the site has a directory for them."""
    if site["metrics_directory"]:
        metrics.write(site, f"slurm_plugin_{report.hook}.prom", report.metrics())
