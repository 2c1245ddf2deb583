"""What happened to a job in a few sentences, and as JSON."""

import json
from typing import Any

import pytest

from slurm_plugin.records.usage import HELPS, Accelerator, Mean, Sample
from slurm_plugin.views.report import verdict
from slurm_plugin.views.report.story import Facts, build_story
from tests import reports
from tests.reports import BEGAN, DIAGNOSIS, ended, line

B = BEGAN
LOST = "the program failed with exit code 1, and n2 gpu-check: 1 of 2 GPUs"
FAILED = {"code": 1, "cause": "the program failed with exit code 1; its nodes are fine", "action": "fail"}


def facts(*attempts: dict[str, Any], **fields: Any) -> Facts:
    """Return the facts of a job, 60 s after its begin."""
    return Facts(17, B + 60, attempts, **{"job": ended(), **fields})


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        (
            reports.demo(),
            [
                "It succeeded after 23 s.",
                f"It was restarted once, because {LOST}.",
                "The program ran again after 8 s, and made 4 steps twice.",
            ],
        ),
        (
            reports.demo(points=()),
            [
                "It succeeded after 23 s.",
                f"It was restarted once, because {LOST}.",
                "The program ran again after 8 s, and had lost 1 s of work since its last checkpoint.",
            ],
        ),
        (
            facts(line(0, "n1", (0, 1, 29, 30), **FAILED, diagnosis=DIAGNOSIS), job=ended(state="FAILED")),
            [
                "It failed after 30 s: the program failed with exit code 1; its nodes are fine.",
                "Likely cause: a GPU is not there any more (gpu_hw, sure; the node's).",
            ],
        ),
        (
            facts(line(0, "n1", (0, 1, 29, 30), action="finish", code=143), job=ended(state="CANCELLED"),
                  says=("it ended: somebody cancelled it",)),
            ["It was stopped after 30 s: somebody cancelled it."],
        ),
        (facts(job=ended(state="PENDING", nodes="", restarts=0), says=("it waits: Priority: x",)),
         ["It waits: Priority: x."]),
        (facts(job=ended(state="PENDING", nodes="")), ["Its state is PENDING."]),
        (facts(job=None), ["Nothing of it is recorded."]),
        (
            facts(line(0, "n1", (0, 1, 29, 30), action="requeue", cause="x"), job=None),
            ["Slurm does not tell of it. The last that is recorded is attempt 0: x."],
        ),
        (
            facts(
                *(line(number, "n1", (20 * number, 20 * number + number, 20 * number + 9, 20 * number + 9), code=1,
                       cause=f"cause {number}", action="again") for number in range(3)),
            ),
            [
                "It succeeded after 49 s.",
                "It was restarted 2 times, the last time because cause 1.",
                "The program ran again after 12 s to 13 s, 12 s in the median.",
            ],
        ),
    ],
)  # fmt: skip
def test_sentences(known: Facts, expected: list[str]) -> None:
    """How it ended or is, its restarts and their cost, the cause of a failure."""
    assert verdict.sentences(build_story(known)) == expected


def test_low_use() -> None:
    """A job that leaves its accelerators idle is told so, with what usually helps."""
    mean = Mean()
    low = [mean.added(Sample(B + at, 0, "n1", 0, accelerators=(Accelerator(0, 0.25),))) for at in range(0, 1200, 30)]
    found = verdict.sentences(build_story(facts(line(0, "n1", (0, 1, 1200, 1201)), samples=low)._replace(now=B + 1300)))
    assert found[1:] == [
        "Its use is low: the accelerators of n1 were used 25% of the last 19 min 30 s. "
        f"What usually helps: {'; '.join(HELPS)}."
    ]


def test_facts_for_people() -> None:
    """Short values with their units; what is not known is empty."""
    assert verdict.facts(build_story(reports.demo())) == {
        "State": "succeeded (COMPLETED)",
        "Nodes": "4: n[1,3-5]",
        "User": "ada",
        "Partition": "batch",
        "Waited": "4 s",
        "Took": "23 s",
        "Restarts": "1",
        "Time to recover": "8 s",
        "Steps made twice": "4",
        "Accelerators in use": "87%",
        "Last step": "60/60",
    }


def test_json() -> None:
    """All that the page tells, in fields that do not change."""
    form = json.loads(json.dumps(verdict.form(build_story(reports.demo(samples=(), points=())))))
    assert form["attempts"].pop(0)["diagnosis"] == DIAGNOSIS
    assert form == {
        "v": 1, "job": 17, "name": "demo", "user": "ada", "partition": "batch", "state": "succeeded",
        "slurm_state": "COMPLETED",
        "verdict": verdict.sentences(build_story(reports.demo(points=(), samples=()))),
        "warnings": [], "note": None, "begin": "2026-05-28T20:26:36.000+00:00", "end": "2026-05-28T20:27:03.100+00:00",
        "attempts": [
            {
                "n": 1, "trial": None, "restart": 0, "nodes": "n[1,3-5]", "start": "2026-05-28T20:26:53.200+00:00",
                "end": "2026-05-28T20:27:03.100+00:00",
                "program": ["2026-05-28T20:26:55.300+00:00", "2026-05-28T20:27:03.000+00:00"], "code": 0,
                "cause": "the program ended with exit code 0", "action": "finish", "faults": {}, "checkpoint": None,
                "diagnosis": None,
            }
        ],
        "left_out": 0,
        "waits": [
            {"start": "2026-05-28T20:26:36.000+00:00", "end": "2026-05-28T20:26:40.000+00:00", "why": "queued"}
        ],
        "restarts": [
            {
                "attempt": 1, "stopped": "2026-05-28T20:26:47.000+00:00", "resumed": "2026-05-28T20:26:55.300+00:00",
                "took_s": 8.3, "in_place": True, "why": LOST, "lost_steps": None, "lost_s": 0.8,
            }
        ],
        "events": [
            {"time": "2026-05-28T20:26:46.200+00:00", "kind": "checkpoint", "node": None,
             "text": "the last checkpoint before the failure", "attempt": 0, "until": None},
            {"time": "2026-05-28T20:26:47.000+00:00", "kind": "fault", "node": "n2", "text": "gpu-check: 1 of 2 GPUs",
             "attempt": 0, "until": None},
            {"time": "2026-05-28T20:26:52.000+00:00", "kind": "drain", "node": "n2", "text": "gpu-check: 1 of 2 GPUs",
             "attempt": 0, "until": None},
        ],
        "used": None, "step": None, "of": None, "next": ["slurm-plugin why n2", "slurm-plugin logs 17"],
    }  # fmt: skip


def test_hostile_json() -> None:
    """Strict JSON, whatever the records hold."""
    text = json.dumps(verdict.form(build_story(reports.hostile())), allow_nan=False)
    assert json.loads(text)["job"] == 17
