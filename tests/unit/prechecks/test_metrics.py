"""Metrics, in the text format that Prometheus reads."""

from prechecks import Report, Verdict
from prechecks.metrics import text

REPORT = Report(
    "n1",
    None,
    "periodic",
    1795276800.5,
    (
        Verdict("dns", "ok", "job_problem", "fine", seconds=0.01),
        Verdict("disk-size.shm", "failed", "node_problem", 'a "quoted"\nmessage', seconds=0.2),
        Verdict("gpu-check", "timeout", "node_problem", "no answer", seconds=10.0),
        Verdict("clock", "skipped", "node_problem", "not here"),
    ),
)


def test_text() -> None:
    """A gauge for each item and question, and nothing of an item that was skipped; messages are no part of it."""
    lines = [line for line in text(REPORT).splitlines() if not line.startswith("#")]
    assert lines == [
        'slurm_plugin_check_failed{hook="periodic",item="dns"} 0',
        'slurm_plugin_check_failed{hook="periodic",item="disk-size.shm"} 1',
        'slurm_plugin_check_failed{hook="periodic",item="gpu-check"} 0',
        'slurm_plugin_check_unknown{hook="periodic",item="dns"} 0',
        'slurm_plugin_check_unknown{hook="periodic",item="disk-size.shm"} 0',
        'slurm_plugin_check_unknown{hook="periodic",item="gpu-check"} 1',
        'slurm_plugin_check_seconds{hook="periodic",item="dns"} 0.01',
        'slurm_plugin_check_seconds{hook="periodic",item="disk-size.shm"} 0.2',
        'slurm_plugin_check_seconds{hook="periodic",item="gpu-check"} 10.0',
        'slurm_plugin_check_last_look_timestamp_seconds{hook="periodic"} 1795276800.5',
    ]


def test_each_metric_is_described_once() -> None:
    """A HELP and a TYPE before its first sample, as the format wants it."""
    lines = text(REPORT).splitlines()
    for name in ("failed", "unknown", "seconds", "last_look_timestamp_seconds"):
        first = next(place for place, line in enumerate(lines) if line.startswith(f"slurm_plugin_check_{name}{{"))
        assert lines[first - 2].startswith(f"# HELP slurm_plugin_check_{name} ")
        assert lines[first - 1] == f"# TYPE slurm_plugin_check_{name} gauge"
    assert text(REPORT).endswith("\n")
