"""A report as metrics, in the text format that Prometheus reads ("Exposition formats", version 0.0.4). Pure."""

from __future__ import annotations

from prechecks.report import Report
from prechecks.verdict import ERROR, FAILED, SKIPPED, TIMEOUT

HELP = {
    "failed": "Whether the item failed at this hook's last look: 1 or 0.",
    "unknown": "Whether the item could not tell (timeout or error) at this hook's last look: 1 or 0.",
    "seconds": "How long the item took at this hook's last look.",
    "last_look_timestamp_seconds": "When this hook looked last, in seconds of the epoch.",
}


def text(report: Report) -> str:
    """Gauges `slurm_plugin_check_<name>{hook="periodic",item="disk-size.shm"}`; an item that was skipped has none."""
    looked = [verdict for verdict in report.items if verdict.verdict != SKIPPED]
    values: dict[str, list[tuple[str, float]]] = {
        "failed": [(verdict.item, int(verdict.verdict == FAILED)) for verdict in looked],
        "unknown": [(verdict.item, int(verdict.verdict in (TIMEOUT, ERROR))) for verdict in looked],
        "seconds": [(verdict.item, verdict.seconds) for verdict in looked],
        "last_look_timestamp_seconds": [("", report.time)],
    }
    lines = []
    for name, samples in values.items():
        lines += [f"# HELP slurm_plugin_check_{name} {HELP[name]}", f"# TYPE slurm_plugin_check_{name} gauge"]
        for item, value in samples:
            labels = f'hook="{report.hook}"' + (f',item="{item}"' if item else "")
            lines.append(f"slurm_plugin_check_{name}{{{labels}}} {value}")
    return "\n".join(lines) + "\n"
