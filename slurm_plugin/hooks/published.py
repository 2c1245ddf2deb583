"""What a hook found, for others to read: the last periodic report of this node, and metrics for Prometheus.

The report is `<run directory>/report.json`, root's and for everybody to read. Metrics are written where the site's
node_exporter looks for them (its textfile collector), a file for each hook, whole or not at all.
"""

from __future__ import annotations

import os
import syslog
from collections.abc import Mapping

from prechecks import remembered

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from prechecks import Report

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


REPORT = "report.json"


def last(site: Mapping[str, Any], report: Report) -> None:
    """This node's last report."""
    _put(site["run_directory"], REPORT, report.to_json(), ours=True)


def metrics(site: Mapping[str, Any], report: Report) -> None:
    """The metrics, where the site wants them."""
    if site["metrics_directory"]:
        from prechecks.metrics import text  # noqa: PLC0415 - many sites have none

        _put(site["metrics_directory"], f"slurm_plugin_{report.hook}.prom", text(report), ours=False)


def _put(path: str, file: str, content: str, *, ours: bool) -> None:
    """What cannot be written is logged, and harms nobody. A directory of `ours` must be root's."""
    try:
        directory = os.open(path, _DIRECTORY)
        try:
            if ours and os.fstat(directory).st_uid != os.geteuid():
                raise PermissionError(f"{path}: not owned by root; remove it")
            remembered.write(directory, file, content)
        finally:
            os.close(directory)
    except OSError as error:
        syslog.syslog(syslog.LOG_ERR, f"what was found cannot be published: {error}")
