"""Check whether a node is fit for a job: one small file per check, and a runner with one deadline for all checks.

The package needs only the standard library and is fast to import: a prolog imports it on every node of every job. A new
check needs a file, a test and a line in CHECKS. The names below are imported on first use: importing all of them takes
17 ms, and a submission needs only one small module of this package.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers treat this name as true
if TYPE_CHECKING:
    from prechecks.check import Check
    from prechecks.registry import CHECKS, EVENT_ITEMS, NODE_ITEMS, SECTIONS
    from prechecks.report import Report, line, node_problems, reason
    from prechecks.runner import run
    from prechecks.verdict import (
        ERROR,
        FAILED,
        JOB_PROBLEM,
        NO_PROBLEM,
        NODE_PROBLEM,
        OK,
        SKIPPED,
        TIMEOUT,
        Context,
        Finding,
        PrecheckError,
        Verdict,
    )

__all__ = [
    "CHECKS",
    "ERROR",
    "EVENT_ITEMS",
    "FAILED",
    "JOB_PROBLEM",
    "NODE_ITEMS",
    "NODE_PROBLEM",
    "NO_PROBLEM",
    "OK",
    "SECTIONS",
    "SKIPPED",
    "TIMEOUT",
    "Check",
    "Context",
    "Finding",
    "PrecheckError",
    "Report",
    "Verdict",
    "line",
    "node_problems",
    "reason",
    "run",
]


def __getattr__(name: str) -> object:
    """Import the modules, and return one of the names in `__all__` (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from prechecks import registry, report, runner, verdict  # noqa: PLC0415

    values = {**vars(registry), **vars(report), **vars(runner), **vars(verdict)}
    globals().update({each: values[each] for each in __all__})
    return globals()[name]
