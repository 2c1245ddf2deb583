"""A prolog that finds processes on the GPUs of its job: ended jobs' are ended, and the check is made again."""

from collections.abc import Sequence
from typing import Any

import pytest

import prechecks
from prechecks import Verdict
from slurm_plugin.node import cleanup, prolog
from tests.unit.node.bad_node import PROLOG

FOUND = Verdict("gpu-processes", "failed", "node_problem", "left", "71 x, 72 a, b, 73 72 y")
OTHER = Verdict("dns", "ok", "job_problem", "1 name")
FINE = FOUND._replace(verdict="ok", message="no process on the job's GPUs")


@pytest.mark.parametrize(
    ("found", "dry_run", "done", "expected"),
    [
        (FOUND, False, True, FINE),
        (FOUND, False, None, FOUND._replace(problem="job_problem")),
        (FOUND, False, False, FOUND),
        (FOUND, True, True, FOUND),
        (FOUND._replace(problem="job_problem"), False, True, FOUND._replace(problem="job_problem")),
        (FINE, False, True, FINE),
    ],
)
def test_processes_on_the_gpus(
    found: Verdict, dry_run: bool, done: bool | None, expected: Verdict, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What may belong to another job keeps this one away; a fault of the node is only what stays."""
    asked: list[Any] = []

    def run(_context: object, _settings: object, *, items: Sequence[str]) -> tuple[Verdict, ...]:
        asked.append(items)
        return (FINE,)

    monkeypatch.setattr(prechecks, "run", run)
    monkeypatch.setattr(cleanup, "end_processes", lambda _site, pids, *_: asked.append(pids) or done)
    site = {"dry_run": dry_run, "prechecks": {}, "slurm_bin": ""}
    assert prolog._without_leftovers((OTHER, found), PROLOG, site, 7) == (OTHER, expected)
    ends = found == FOUND and not dry_run
    assert asked == [[71, 72, 73]] * ends + [["gpu-processes"]] * (ends and done is True)
