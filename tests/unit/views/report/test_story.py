"""What happened to a job, from its records."""

from typing import Any

import pytest

from slurm_plugin.records import grant
from slurm_plugin.records.progress_file import Point
from slurm_plugin.slurm import Job
from slurm_plugin.views import states
from slurm_plugin.views.report.story import CHECKPOINT, DRAIN, FAULT, Drain, Facts, Restart, Story, Wait, build_story
from tests import reports
from tests.reports import BEGAN, ended, line, utc

B = BEGAN
CAUSE = "the program failed with exit code 1, and n2 gpu-check: 1 of 2 GPUs"


def running(**fields: Any) -> Job:
    """Return the job while it runs."""
    return ended(**{"state": "RUNNING", "start_time": reports.moment(B), **fields})


def facts(*attempts: dict[str, Any], **fields: Any) -> Facts:
    """Return the facts of a job, 60 s after its begin."""
    return Facts(17, B + 60, attempts, **{"job": ended(), **fields})


def test_a_restart_and_its_cost() -> None:
    """From the end of the program to its next begin. Steps made twice, and work since the last checkpoint."""
    found = build_story(reports.demo())
    (restart,) = found.restarts
    assert restart == Restart(1, B + 7.0, B + 15.3, in_place=True, why=CAUSE, lost_steps=4, lost_s=pytest.approx(0.8))
    assert restart.took == pytest.approx(8.3)
    assert [(each.kind, each.node, each.at - B, each.attempt) for each in found.marks] == [
        (CHECKPOINT, "", pytest.approx(6.2), 0),
        (FAULT, "n2", 7.0, 0),
        (DRAIN, "n2", 12.0, 0),
    ]
    assert found.waits == (Wait(B - 4, B, "queued"),)
    assert (found.state, found.nodes, found.begin, found.end) == (
        states.SUCCEEDED, ("n1", "n2", "n3", "n4", "n5"), B - 4, B + 23.1,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("points", "lost"),
    [
        ([], None),
        ([Point(B, 0, 24)], None),
        ([Point(B, 0, 23), Point(B, 0, 24), Point(B, 1, 21), Point(B, 1, 60)], 4),
        ([Point(B, 0, 24), Point(B, 1, 25)], 0),
        ([Point(B, 0, 24), Point(B, 1, 30)], 0),
        ([Point(B, 0, 24), Point(B, 1, 30, first=21), Point(B, 1, 60)], 4),
    ],
)
def test_steps_made_twice(points: list[Point], lost: int | None) -> None:
    """The last step before and the first step after tell it; without them it is not known."""
    assert build_story(reports.demo(points=points)).restarts[0].lost_steps == lost


def test_a_requeue() -> None:
    """Between two runs the job waits. Without the times of the program those of the attempt count."""
    first = line(0, "n[1-2]", (0, 0, 0, 10), code=1, action="requeue", program=None, cause="x")
    second = line(1, "n[3-4]", (131, 131, 131, 140), restart=1, program=None)
    found = build_story(facts(first, second)._replace(now=B + 200))
    assert found.waits == (Wait(B - 4, B, "queued"), Wait(B + 10, B + 131, "requeued"))
    (restart,) = found.restarts
    assert (restart.took, restart.in_place, restart.lost_s) == (121.0, False, None)


def test_a_program_that_did_not_start() -> None:
    """Its checks failed: the program ran again with the attempt after it, 14 s after it had stopped."""
    checks = line(1, "n[3-4]", (10, 0, 0, 20), phase="precheck", program=None, code=1, action="again")
    found = build_story(
        facts(line(0, "n[1-2]", (0, 1, 8, 10), action="again"), checks, line(2, "n1", (20, 22, 29, 30)))
    )
    assert [each.took for each in found.restarts] == [None, 14.0]
    assert found.attempts[1].worked == (B + 10, B + 20)


def test_a_run_that_its_prologs_stopped() -> None:
    """It never began: only its end is known, and its cause names the nodes."""
    first = {
        "n": 0, "restart": 0, "nodes": "n[1-2]", "start": None, "end": utc(B), "phase": None, "code": None,
        "cause": "n1: gpu-check: 3 of 4 GPUs; n2: dns: x", "action": "requeue", "verdicts": {},
    }  # fmt: skip
    found = build_story(facts(first, line(1, "n[3-4]", (2, 2, 9, 10), restart=1)))
    assert not found.attempts[0].began
    assert [(each.kind, each.node, each.text) for each in found.marks] == [
        (FAULT, "n1", "gpu-check: 3 of 4 GPUs"),
        (FAULT, "n2", "dns: x"),
    ]


@pytest.mark.parametrize(
    ("attempts", "fields", "expected"),
    [
        ([], {}, [(0, "n[1-2]", 0.0)]),
        ([line(0, "n[1-2]", (0, 1, 9, 10), action="again")], {}, [(0, "n[1-2]", 0.0), (1, "n[1-2]", 10.0)]),
        ([line(0, "n[1-2]", (0, 1, 9, 10), action="requeue")], {}, [(0, "n[1-2]", 0.0)]),
        (
            [line(0, "n[3-4]", (-99, -98, -9, -8), action="requeue")],
            {"restarts": 1},
            [(0, "n[3-4]", -99.0), (1, "n[1-2]", 0.0)],
        ),
    ],
)
def test_the_attempt_that_runs(
    attempts: list[dict[str, Any]], fields: dict[str, Any], expected: list[tuple[int, str, float]]
) -> None:
    """It is not on record yet: Slurm tells its run and nodes, the attempt before it when it began."""
    found = build_story(facts(*attempts, job=running(**{"nodes": "n[1-2]", "restarts": 0, **fields})))
    assert [(each.number, each.where, each.start - B) for each in found.attempts] == expected
    last = found.attempts[-1]
    assert last.is_over == (not fields and bool(attempts) and attempts[-1]["action"] == "requeue")
    assert found.end == B + 60


def test_a_held_job() -> None:
    """The hold goes on until now, and no attempt runs."""
    held = line(0, "n1", (0, 1, 9, 10), code=1, action="hold", cause="x")
    found = build_story(facts(held, job=running(nodes="n1", restarts=0), held={"until": utc(B + 999)}))
    assert (len(found.attempts), found.waits[-1], found.state) == (1, Wait(B + 10, B + 60, "hold"), states.HELD_WORD)


def test_a_waiting_job() -> None:
    """Before its first run, and after a requeue."""
    waiting = ended(state="PENDING", nodes="", restarts=0)
    assert build_story(facts(job=waiting)).waits == (Wait(B - 4, B + 60, "queued"),)
    again = build_story(facts(line(0, "n1", (0, 1, 9, 10), action="requeue"), job=waiting._replace(restarts=1)))
    assert (again.waits[-1], again.state) == (Wait(B + 10, B + 60, "requeued"), states.RESTARTING)


@pytest.mark.parametrize(
    ("action", "code", "state"),
    [
        ("finish", 0, states.SUCCEEDED), ("finish", 143, states.STOPPED), ("fail", 1, states.ERROR),
        ("cancel", None, states.STOPPED), ("requeue", 1, ""), ("hold", 1, ""),
    ],
)  # fmt: skip
def test_a_job_that_slurm_has_forgotten(action: str, code: int | None, state: str) -> None:
    """Its last record tells how it ended, if it does."""
    found = build_story(facts(line(0, "n1", (0, 1, 9, 10), action=action, code=code), job=None))
    assert (found.state, found.end, found.is_over) == (state, B + 10, True)


def test_by_hand_and_trials() -> None:
    """`rerun` keeps the number, so steps made twice are not known. The next trial of a task is no restart."""
    again = line(0, "n1", (20, 21, 29, 30))
    points = [Point(B + 1, 0, 1), Point(B + 9, 0, 9), Point(B + 25, 0, 3)]
    found = build_story(facts(line(0, "n1", (0, 1, 9, 10), action="hold"), again, points=points))
    assert [(each.took, each.lost_steps) for each in found.restarts] == [(12.0, None)]
    assert [each.why for each in found.waits] == ["queued", "hold"]
    trials = [line(number, "n1", (9 * number, 9 * number, 9 * number + 8, 9 * number + 8), trial=trial)
              for number, trial in enumerate((1, 1, 2))]  # fmt: skip
    found = build_story(facts(*trials))
    assert ([each.trial for each in found.attempts], [each.attempt for each in found.restarts]) == ([1, 1, 2], [1])


def test_many_attempts() -> None:
    """The first one and the newest are kept; all restarts count."""
    many = [line(number, "n1", (number * 9, number * 9, number * 9 + 5, number * 9 + 9)) for number in range(500)]
    found: Story = build_story(Facts(17, B + 9e5, many, ended(nodes="n1")))
    assert (len(found.attempts), found.left_out, len(found.restarts)) == (200, 300, 499)
    assert [each.number for each in found.attempts[:2]] == [0, 301]


def test_drains_outside_the_job() -> None:
    """A drain before or long after the job is another's, and is not shown. One by its epilog is."""
    times = ((-900, -800), (9, 12), (30, None), (900, None))
    drains = [Drain("n1", B + start, None if end is None else B + end, str(start)) for start, end in times]
    found = build_story(reports.demo(drained=drains)._replace(now=B + 9000))
    assert [(each.text, each.until) for each in found.marks if each.kind == DRAIN] == [("9", B + 12), ("30", None)]
    assert found.end == B + 30


def test_the_grant_has_no_part() -> None:
    """A cancelled job whose restarts were used up failed."""
    given = grant.written("", grant.Grant(1, 1, last=f"{grant.NO_MORE} after n2: x"))
    job = ended(state="CANCELLED", admin_comment=given)
    assert build_story(facts(line(0, "n1", (0, 1, 9, 10), code=1, action="fail"), job=job)).state == states.ERROR
