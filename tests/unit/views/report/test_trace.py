"""The report as a trace for Perfetto."""

import json
from itertools import pairwise
from typing import Any

from slurm_plugin.views.report.story import build_story
from slurm_plugin.views.report.trace import trace
from tests import reports
from tests.reports import BEGAN

B = round(BEGAN * 1e6)
LOST = "the program failed with exit code 1, and n2 gpu-check: 1 of 2 GPUs"
FIRST = {"nodes": "n[1-4]", "code": 1, "then": "again", "because": LOST}


def events(**fields: Any) -> list[dict[str, Any]]:
    """Return the events of the trace of a job."""
    found: list[dict[str, Any]] = json.loads(trace(build_story(reports.demo(**fields))))["traceEvents"]
    return found


def test_names() -> None:
    """The job and each node are processes with names, in this order."""
    found = [each for each in events() if each["ph"] == "M"]
    assert [each["args"]["name"] for each in found if each["name"] == "process_name"] == [
        "job 17 demo", "n1", "n2", "n3", "n4", "n5",
    ]  # fmt: skip
    assert [each["pid"] for each in found if each["name"] == "process_sort_index"] == [1, 2, 3, 4, 5, 6]


def test_slices_and_moments() -> None:
    """Times in microseconds. What concerns a node is on that node."""
    found = [each for each in events() if each["ph"] in "Xi" and each["pid"] in (1, 3)]
    assert all(each["tid"] == each["pid"] for each in found)
    short = [(each["ph"], each["pid"], each["name"], each["ts"] - B, each.get("dur")) for each in found]
    assert short == [
        ("X", 1, "queued", -4_000_000, 4_000_000),
        ("X", 1, "attempt 0", 0, 13_200_000),
        ("X", 1, "attempt 1", 13_200_000, 9_900_000),
        ("i", 1, "last checkpoint before a failure", 6_200_000, None),
        ("i", 3, "fault of a node", 7_000_000, None),
        ("i", 3, "slurm_plugin drains the node", 12_000_000, None),
        ("X", 3, "attempt 0", 0, 13_200_000),
        ("X", 3, "program", 2_100_000, 4_900_000),
    ]
    assert found[1]["args"] == FIRST


def test_slices_nest() -> None:
    """On one thread a slice is within the one before, or after it: Perfetto draws no others."""
    for process in range(1, 7):
        slices = [each for each in events() if each["ph"] == "X" and each["pid"] == process]
        spans = sorted((each["ts"], -each["dur"], each["ts"] + each["dur"]) for each in slices)
        assert all(later[2] <= before[2] or later[0] >= before[2] for before, later in pairwise(spans))


def test_counters() -> None:
    """A line for each accelerator, and the steps on the job; nothing for what was not measured."""
    found = [each for each in events() if each["ph"] == "C"]
    names = {(each["name"], tuple(each["args"])) for each in found}
    assert names == {
        ("accelerators in use, %", ("0", "1")), ("CPUs in use, %", ("cpu",)), ("memory, bytes", ("memory",)),
        ("bytes a second", ("read", "write")), ("step", ("step",)), ("time of a step, s", ("step_s",)),
    }  # fmt: skip
    assert not [each for each in events(samples=(), points=()) if each["ph"] == "C"]


def test_hostile_records() -> None:
    """The trace is JSON, without the numbers that JSON has not."""
    assert json.loads(trace(build_story(reports.hostile())))["otherData"]["job"] == 17
