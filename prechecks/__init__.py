"""Is this node fit for this job: one small file per check, and a runner with one deadline for all of them.

Standard library only, and cheap to import: a prolog does so on every node of every job. A new check is one file,
its test, and one line in CHECKS.
"""

from prechecks.check import Check
from prechecks.errors import PrecheckError
from prechecks.registry import CHECKS, NODE_ITEMS, SECTIONS
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
    Verdict,
)

__all__ = [
    "CHECKS",
    "ERROR",
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
