"""What a hook found, for others to read: the last report of each hook on this node, and metrics for Prometheus.

Reports are `<run directory>/reports/<hook>.json`, root's and for everybody to read. Metrics are written where the
site's node_exporter looks for them (its textfile collector), a file for each hook, whole or not at all.
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


def write(site: Mapping[str, Any], report: Report) -> None:
    """Both; what cannot be written is logged, and harms nobody."""
    try:
        _put(remembered.opened(f"{site['run_directory']}/reports", make=True), f"{report.hook}.json", report.to_json())
        metrics(site, report)
    except OSError as error:
        syslog.syslog(syslog.LOG_ERR, f"what was found cannot be published: {error}")


def metrics(site: Mapping[str, Any], report: Report) -> None:
    """The metrics alone, where the site wants them. Raises OSError."""
    if site["metrics_directory"]:
        from prechecks.metrics import text  # noqa: PLC0415 - many sites have none

        directory = os.open(site["metrics_directory"], _DIRECTORY)
        _put(directory, f"slurm_plugin_{report.hook}.prom", text(report))


def _put(directory: int, file: str, content: str) -> None:
    try:
        remembered.write(directory, file, content)
    finally:
        os.close(directory)
