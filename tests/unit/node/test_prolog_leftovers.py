"""A prolog that finds processes on the GPUs of its job: ended jobs' are ended, and the check is made again."""

from collections.abc import Sequence
from typing import Any

import pytest

import prechecks
from prechecks import Verdict
from prechecks.checks.gpu_processes import GpuProcess, judge
from prechecks.runner import run
from slurm_plugin.node import cleanup, prolog
from tests.unit.node.bad_node import PROLOG
from tests.unit.prechecks.looks import Looks
from tests.waiting import HANG_S

FOUND = Verdict("gpu-processes", "failed", "node_problem", "left", "71 72 73: x, a, 74 b: 75")
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


@pytest.mark.parametrize(
    ("there", "again", "expected"),
    [
        (range(1001, 1101), 0, FINE),  # more than one verdict can name
        (range(1001, 1003), 1, FOUND),  # SIGKILL does not end one: the node's fault
        (range(1001, 1003), 2, FOUND._replace(problem="job_problem")),  # something starts others in their place
    ],
)
def test_more_processes_than_a_verdict_names(
    there: Sequence[int], again: int, expected: Verdict, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All are ended. A fault of the node is only what SIGKILL does not end."""
    left = [GpuProcess("0000:00:09.0", pid, "/home/ann/envs/train/bin/python3.11", "ann", "6") for pid in there]
    ended = set[int]()

    def verdict() -> Verdict:
        finding = judge([each for each in left if each.pid not in ended], (), shared=False)
        (found,) = run(PROLOG, {"deadline_s": HANG_S}, checks=[Looks("gpu-processes", lambda: finding, forked=False)])
        return found

    def end(_site: object, pids: Sequence[int], *_: object) -> bool:
        assert not ended.intersection(pids)
        ended.update(pids)
        if again == 1:
            ended.discard(1001)
        if again == 2:
            left.append(left[0]._replace(pid=max(each.pid for each in left) + 1))
        return True

    bad = verdict()
    monkeypatch.setattr(prechecks, "run", lambda *_, **__: (verdict(),))
    monkeypatch.setattr(cleanup, "end_processes", end)
    site = {"dry_run": False, "prechecks": {}, "slurm_bin": ""}
    (now,) = prolog._without_leftovers((bad,), PROLOG, site, 7)
    assert (now.verdict, now.problem) == (expected.verdict, expected.problem)
