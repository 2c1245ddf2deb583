"""Why a job is in its state: values in, lines out."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from slurm_plugin.records import grant, history, usage
from slurm_plugin.records.grant import Grant, Run, written
from slurm_plugin.slurm import HELD_BY_LIMIT, Queueing, Request
from slurm_plugin.slurm.resources import Reservation
from slurm_plugin.views import why, why_node
from slurm_plugin.views.why_node import Answer
from tests.fakes import job, node
from tests.unit.drained import AT, BAD

ASKED = "[sp1;retries=3;ib=auto]"
FIRST = {
    "n": 0, "nodes": "n[1-2]", "start": "2026-03-01T09:00:00.000+00:00", "end": "2026-03-01T09:30:00.000+00:00",
    "phase": "program", "code": 5, "cause": "the program failed with exit code 5, and n2 gpu-check: 3 of 4 GPUs",
    "verdicts": {"n2": "gpu-check: 3 of 4 GPUs"}, "action": "requeue",
}  # fmt: skip


def given(**fields: Any) -> str:
    """Return an admin_comment with this grant."""
    return grant.written("", Grant(**{"granted": 3, **fields}))


RESTARTED = given(requeues=1, counted=0, excluded=("n2",), last="n2: gpu-check: 3 of 4 GPUs")


def test_a_job_that_runs_again() -> None:
    """The answer has its nodes, the cause of its restart, its excluded nodes, its attempts and the faulty node."""
    restarted = job(
        state="RUNNING", nodes="n[3-4]", excluded="n2", comment=ASKED, admin_comment=RESTARTED, start_time=AT, reason=""
    )
    assert why.of_job(restarted, {"n2": BAD}, [FIRST]) == Answer(
        "job 7",
        "RUNNING",
        "",
        (
            "it runs on n[3-4] since 2026-03-01 09:30:00 UTC",
            "restart 1 of 3 was needed because of n2: gpu-check: 3 of 4 GPUs",
            "it leaves out n2",
            "n2 is out: gpu-check: 3 of 4 GPUs; disk-size shm: 512 MB < 1 GB",
            "attempt 0 on n[1-2], 2026-03-01 09:00:00 to 09:30:00: the program failed with exit code 5, and n2 "
            "gpu-check: 3 of 4 GPUs; then it was requeued",
        ),
        ("slurm-plugin why n2",),
    )


def test_the_cause_of_a_failure() -> None:
    """Of the last attempt of a job that ended; of the last that failed, if the job runs or waits again."""
    cause = {"class": "gpu_hw", "says": "a fault", "whose": "node", "confidence": "sure", "nodes": {"n2": "exclude"}}
    head = "likely cause: a fault (gpu_hw, sure; the node's)"
    failed, fine = {**FIRST, "diagnosis": cause}, {**FIRST, "n": 1}
    for state, attempts, found in (
        ("RUNNING", [failed], "slurm-plugin diagnose 7 --attempt 0"),
        ("PENDING", [failed, fine], "slurm-plugin diagnose 7 --attempt 0"),
        ("FAILED", [failed], "slurm-plugin diagnose 7"),
        ("FAILED", [failed, fine], ""),
        ("RUNNING", [fine], ""),
        ("RUNNING", [failed, {**fine, "diagnosis": {"class": "none"}}], "slurm-plugin diagnose 7 --attempt 0"),
    ):
        answer = why.of_job(job(state=state, nodes="n[3-4]", start_time=AT, reason=""), {}, attempts)
        assert (head in answer.lines, found in (*answer.then, "")) == (bool(found), True)
        assert any("diagnose" in each for each in answer.then) == bool(found)
        assert why_node.form(answer)["diagnosis"] == (cause if found else None)


def test_a_job_that_is_held() -> None:
    """A held job shows the failure, the end of the hold, and its three commands first."""
    held = {"until": "2026-03-01T13:30:00+00:00", "cause": "the program failed with exit code 5; its nodes are fine"}
    runs = job(state="RUNNING", nodes="n[1-2]", start_time=AT, reason="", restarts=0)
    found = why.of_job(runs, {}, [{**FIRST, "action": "hold"}], held)
    assert found.lines[0] == (
        "it runs on n[1-2] since 2026-03-01 09:30:00 UTC; its command has failed, and it is held for debugging until "
        "2026-03-01 13:30:00 UTC: the program failed with exit code 5; its nodes are fine"
    )
    assert found.lines[-1].endswith("; then it was held")
    assert found.then[:3] == ("slurm-plugin shell 7", "slurm-plugin rerun 7", "slurm-plugin release 7")
    assert "until ?: ?" in why.of_job(runs, {}, None, {}).lines[0]


def test_a_job_that_waits() -> None:
    """A waiting job shows Slurm's reason in our words, the next event where it is known, and one command."""
    cases = [
        ({"reason": "Priority"}, "jobs with a higher priority are before it", "squeue --start -j 7"),
        ({"reason": "BeginTime", "restarts": 0, "start_time": AT},
         "it may not start before the time that was asked for (from 2026-03-01 09:30:00 UTC on)",
         "scontrol show job 7"),
        ({"reason": "BeginTime", "comment": "[sp1;retries=2;ib=auto]", "start_time": AT},
         "starts at the next pass of Slurm's scheduler after its StartTime (from 2026-03-01 09:30:00 UTC on)",
         "scontrol show job 7"),
        ({"reason": "BeginTime"}, "Slurm lets such a job start after 121 s", "scontrol show job 7"),
        ({"reason": "BeginTime", "admin_comment": RESTARTED}, "this requeue is ours, so it starts in a few seconds",
         "scontrol show job 7"),
        ({"reason": HELD_BY_LIMIT}, "for any other an administrator does it", "scontrol release 7"),
        ({"reason": HELD_BY_LIMIT, "state": "REQUEUE_HOLD", "admin_comment": RESTARTED},
         "It has restarts left, so it is released in a few seconds", "scontrol release 7"),
        ({"reason": "ReqNodeNotAvail, UnavailableNodes:n[5-6]"}, "a node that it asked for is down",
         "slurm-plugin why n5"),
        ({"reason": "PartitionTimeLimit", "partition": "gpu,long"}, "more than the partition lets a job have",
         "scontrol show partition gpu"),
        ({"reason": "NewInSlurm99"}, "it waits: NewInSlurm99: Slurm says no more", "scontrol show job 7"),
        ({"reason": ""}, "it waits: no reason yet: Slurm has not looked at it yet", "squeue --start -j 7"),
    ]  # fmt: skip
    for fields, says, then in cases:
        found = why.of_job(job(**fields), {}, None)
        assert says in found.lines[0], fields
        assert found.then == (then,), fields


BOUNDED = given(requeues=1, counted=0, deadline="2026-03-01T10:30:00")
HOUR = Queueing(3600, 0, AT + timedelta(hours=1))
LONGER = (
    "for longer: queue_timeout in the spec of the next submission (never: for any time), the site's "
    "recovery.queue_timeout for all jobs, or for this wait an administrator moves its Deadline"
)


def test_a_job_that_waits_for_a_reservation(zone: Callable[[str], None]) -> None:
    """It is named with a time limit that fits, unless the job waits for something else."""
    zone("UTC")
    nodes = {name: node(name, partitions=("main",)) for name in ("n1", "n2", "n3")}
    m = Reservation("m", AT + timedelta(minutes=59), AT + timedelta(hours=3), frozenset({"n1", "n2"}))
    reaches = "reaches into the reservation m, from 10:29; with `time: 55m` it"
    maintenance = "ReqNodeNotAvail, Reserved for maintenance"
    for reason, wanted, limit_s, changes, says in (
        (maintenance, 2, 14400, {}, f"its time limit {reaches} could start now"),
        (maintenance, 2, None, {}, f"it has no time limit, and {reaches} could start now"),
        (maintenance, 4, None, {}, f"it has no time limit, and {reaches} would end before"),
        (maintenance, 2, 1800, {}, ""),
        (maintenance, 2, None, {"excluded": "n[1-2]"}, ""),
        (maintenance, 2, None, {"partition": "other"}, f"it has no time limit, and {reaches} would end before"),
        ("Resources", 2, None, {}, f"it has no time limit, and {reaches} could start now"),
        ("Resources", 1, None, {}, ""),  # n3 is not reserved: the job waits for something else there
        ("Resources", 4, None, {}, ""),  # it waits for nodes in use
    ):
        waiting = job(reason=reason, partition="main", restarts=0)._replace(**changes)
        given = {"limit_s": limit_s, "nodes": nodes, "reservations": [m], "now": AT}
        assert why.reserved(waiting, Request("main", nodes=wanted), **given) == says, (reason, wanted, changes)
        assert why.reserved(waiting, Request("main", reservation="m"), **given) == ""
    found = why.of_job(job(reason=maintenance, start_time=AT), {}, [], reserved="its time limit reaches into m")
    assert found.lines[0] == f"it waits: {maintenance}: its time limit reaches into m (from 2026-03-01 09:30:00 UTC on)"
    assert found.then == ("scontrol show reservation",)


def test_how_long_a_restarted_job_may_wait() -> None:
    """The answer has the deadline, its source and its remedy; an array task has its own name."""
    cases = [
        (ASKED, HOUR, "the site's recovery.queue_timeout", "7"),
        ("[sp1;retries=3;ib=auto;q=1800]", HOUR._replace(name="5_2"), "queue_timeout in its spec", "5_2"),
    ]
    for comment, queue, whose, name in cases:
        waits = job(reason="Resources", comment=comment, admin_comment=BOUNDED)
        assert why.has_deadline(waits), comment
        found = why.of_job(waits, {}, None, queue=queue)
        assert found.lines[1:3] == (
            f"it may wait until 2026-03-01 09:30:00 UTC for its restart ({whose}), held or not; "
            "Slurm ends it then: DEADLINE",
            LONGER,
        ), comment
        assert found.then == (
            "squeue --start -j 7",
            f"as an administrator: scontrol update JobId={name} Deadline=2099-12-31T00:00:00",
        ), comment


def test_a_job_that_may_wait_for_any_time() -> None:
    """A moved deadline is not shown; a job without ours, or a running one, costs no question."""
    waits = job(reason="Resources", comment=ASKED, admin_comment=BOUNDED)
    moved = why.of_job(waits, {}, None, queue=HOUR._replace(deadline=datetime(2099, 12, 31, tzinfo=UTC)))
    assert moved == why.of_job(waits, {}, None)
    assert not any("may wait" in line for line in moved.lines)
    assert not why.has_deadline(waits._replace(admin_comment=RESTARTED))
    assert not why.has_deadline(waits._replace(state="RUNNING"))


def test_a_job_that_ended() -> None:
    """The cause comes from the attempt of the last run, else from the grant, else from Slurm."""
    cases = [
        ({"state": "COMPLETED"}, None, "it ended: its program ended with exit code 0"),
        ({"state": "FAILED", "exit_code": 7}, None, "it ended: it failed, exit code 7"),
        ({"state": "FAILED", "exit_code": None, "exit_signal": 9, "reason": "RaisedSignal:9(Killed)"}, None,
         "it ended: it failed, signal 9 (RaisedSignal:9(Killed))"),
        ({"state": "FAILED", "exit_code": 5}, [{**FIRST, "n": 1, "restart": 1, "cause": "no restart is left"}],
         "it failed: no restart is left"),
        ({"state": "FAILED", "exit_code": 5}, [FIRST], "it ended: it failed, exit code 5"),
        ({"state": "CANCELLED", "admin_comment": given(last="no restart left after n2: dns: x")}, None,
         "it was cancelled: no restart left after n2: dns: x"),
        ({"state": "CANCELLED"}, None, "it ended: somebody cancelled it"),
        ({"state": "TIMEOUT", "reason": "TimeLimit"}, None, "it ended: its time limit was over (TimeLimit)"),
        ({"state": "DEADLINE", "reason": "DeadLine",
          "admin_comment": given(requeues=1, counted=0, deadline="2026-03-01T10:30:00")}, None,
         "it ended: it waited too long in the queue after a restart (queue_timeout); its deadline was 2026-03-01"),
        ({"state": "DEADLINE", "reason": "DeadLine"}, None, "it ended: it could not end before its deadline any more"),
        ({"state": "NODE_FAIL"}, None, "it ended: a node of it died, and it may not be requeued"),
    ]  # fmt: skip
    for fields, attempts, says in cases:
        found = why.of_job(job(**{"reason": "", **fields}), {}, attempts)
        assert found.lines[0].startswith(says), fields


def test_an_interactive_job_whose_prolog_failed() -> None:
    """Slurm cancels salloc and srun without a message; the drained node names the job."""
    ended = job(state="CANCELLED", reason="", restarts=0, nodes="n[1-2]", admin_comment=given(granted=1))
    found = why.of_job(ended, {"n1": node("n1"), "n2": BAD}, None)
    assert found.lines[0] == (
        "it was ended: a node of it failed its checks before it started, and only batch jobs with retries are "
        "requeued; submitted again it gets other nodes"
    )
    assert found.then[-1] == "slurm-plugin why n2"
    ran = ended._replace(start_time=AT, end_time=AT + timedelta(hours=1))  # and its epilog found the fault
    assert why.of_job(ran, {"n2": BAD}, None).lines[0].startswith("it ended: somebody cancelled it")
    other = node("n2", "IDLE", "DRAIN", reason="slurm_plugin: dns: x [job 77]")
    assert why.of_job(ended, {"n2": other}, None).lines[0].startswith("it ended: somebody cancelled it")


def test_restarts() -> None:
    """The answer has the requested, granted and used restarts, and counts other requeues apart."""
    cases = [
        ({"comment": ASKED}, "it asked for 3 restarts, and no job_submit.lua of slurm_plugin granted any"),
        ({"comment": ASKED, "admin_comment": given(granted=1)}, "it asked for 3 restarts; the site grants 1"),
        ({"comment": "[sp1;retries=3;again=1]", "admin_comment": given(), "restarts": 0},
         "it was restarted once on nodes that it had, without a requeue"),
        ({"admin_comment": given(requeues=1, counted=0, again=1, last="n2: x")},
         "restart 2 of 3 was needed because of n2: x"),
        ({"admin_comment": given(), "restarts": 0}, "none of its 3 restarts was needed so far"),
        ({"admin_comment": RESTARTED, "restarts": 3},
         "it was requeued 2 times for another cause, which costs none of them"),
        ({}, "it was requeued once: by Slurm, its owner, an administrator or a preemption"),
    ]  # fmt: skip
    for fields, line in cases:
        assert line in why.of_job(job(**fields), {}, None).lines, fields


def test_restarts_of_its_own() -> None:
    """Where no site grants any, those of attempts.jsonl count, and a run without a record there."""
    recorded = {"n": 0, "restart": 0, "nodes": "n1", "action": "requeue", "cause": "n1 is bad"}
    twice = job(restarts=2, comment=ASKED)
    lines = why.of_job(twice, {}, [recorded]).lines
    assert "it restarts itself, without an installation of slurm_plugin: 2 of its 3 restarts used" in lines
    assert f"attempt 1 on ?, until ?: {history.NO_RECORD}; then it was requeued" in lines
    assert not any(history.NO_RECORD in line for line in why.of_job(twice, {}, None).lines)


def test_a_job_between() -> None:
    """A job between waiting and its end has a line; an unknown state is named."""
    cases = [
        ("CONFIGURING", "its nodes boot, or their prologs run: n[1-2]"),
        ("EXPEDITING", "Slurm starts it again at once (--requeue=expedite): n[1-2]"),
        ("RESIZING", "its state is RESIZING: n[1-2]"),
    ]
    for state, says in cases:
        assert why.of_job(job(state=state, nodes="n[1-2]"), {}, None).lines[0] == says, state


def test_a_restart_that_is_not_counted_yet() -> None:
    """While the job completes, the drained node gives the cause that the worker has not written yet."""
    found = why.of_job(job(state="COMPLETING", admin_comment=given(), nodes="n[1-2]"), {"n2": BAD}, None)
    assert "its last run ended because of n2: gpu-check: 3 of 4 GPUs; disk-size shm: 512 MB < 1 GB" in found.lines
    assert not any("another cause" in line for line in found.lines)


def test_an_attempt_that_its_user_has_edited() -> None:
    """An edited attempt is shown as far as possible."""
    for attempt in [{}, {"n": [], "start": 7, "end": None, "cause": {"a": 1}, "action": "?"}]:
        found = why.of_job(job(state="FAILED", reason="", exit_code=1), {}, [attempt])
        assert found.lines[-1].startswith("attempt "), attempt


def test_where_the_attempts_would_be() -> None:
    """An ended job of ours without attempts gets a hint where they are."""
    ended = job(state="FAILED", reason="", exit_code=1, comment=ASKED)
    assert why.NO_ATTEMPT in why.of_job(ended, {}, None).lines
    assert why.NO_ATTEMPT not in why.of_job(ended._replace(comment=""), {}, None).lines
    assert why.NO_ATTEMPT not in why.of_job(ended, {}, []).lines


def test_a_job_that_slurm_has_forgotten() -> None:
    """Nodes that name it, and its attempts, explain a forgotten job; without either there is no answer."""
    assert why.forgotten(8, [BAD, node("n1")], None, "300 s") is None
    found = why.forgotten(7, [BAD, node("n1")], None, "300 s")
    assert found == Answer(
        "job 7",
        "",
        "",
        (
            "Slurm has forgotten it, as it does 300 s after a job's end (MinJobAge)",
            "n2 failed its checks and was drained: gpu-check: 3 of 4 GPUs; disk-size shm: 512 MB < 1 GB",
            "a job of salloc or srun ends there; the same command gets other nodes now",
        ),
        ("slurm-plugin why n2", "sacct -j 7"),
    )
    told = why.forgotten(8, [], [FIRST], "300 s")
    assert told
    assert told.lines[1].startswith("attempt 0 on n[1-2]")


def test_the_nodes_to_ask_for() -> None:
    """The job's own, excluded and missing nodes are returned once each; a bad list gives none."""
    waits = job(nodes="n[1-2]", excluded="n2,n4", reason="ReqNodeNotAvail, UnavailableNodes:n5")
    assert why.unavailable(waits) == ["n1", "n2", "n4", "n5"]
    assert why.unavailable(waits._replace(reason="ReqNodeNotAvail, UnavailableNodes:", excluded="n[")) == ["n1", "n2"]


def test_the_last_restart_was_used() -> None:
    """The cause of no further restart is not that of the last one; the cancelled requeue counts as ours."""
    over = Grant(1, 1, counted=0, last="no restart left after n4: gpu-check: x")
    lines = why.of_job(job(state="CANCELLED", restarts=2, admin_comment=written("", over)), {}, None).lines
    assert lines == ("it was cancelled: no restart left after n4: gpu-check: x", "1 of its 1 restart used")


def test_runs_that_no_script_saw() -> None:
    """Every run has its own cause; the last counted one is that of the last restart."""
    given = Grant(2, 2, counted=1, last="no restart left after n3: z")
    for number, cause in enumerate(("n1: x", "n2: y", "n3: z")):
        given = given.with_run(Run(number, f"n{number + 1}", "2026-03-01T09:20:00", cause))
    over = job(state="CANCELLED", reason="", restarts=3, comment="[sp1;retries=2]", admin_comment=written("", given))
    assert why.of_job(over, {}, None).lines == (
        "it was cancelled: no restart left after n3: z",
        "restart 2 of 2 was needed because of n2: y",
        "2 of its 2 restarts used",
        "attempt 0 on n1, until 2026-03-01 09:20:00: n1: x; then it was requeued",
        "attempt 1 on n2, until 2026-03-01 09:20:00: n2: y; then it was requeued",
        "attempt 2 on n3, until 2026-03-01 09:20:00: no restart left after n3: z; then it was cancelled",
    )


def test_the_last_attempt_of_a_run_with_restarts_in_place() -> None:
    """The last attempt explains the failure, though its number is not Slurm's count."""
    failed = job(state="FAILED", reason="", restarts=0, exit_code=5)
    lines = [{"n": 0, "restart": 0, "action": "again"}, {"n": 1, "restart": 0, "action": "fail", "cause": "it was 5"}]
    assert why.of_job(failed, {}, lines).lines[0] == "it failed: it was 5"


def test_a_job_that_hardly_uses_its_accelerators() -> None:
    """The warning follows the state, with what usually helps."""
    low = usage.Low("n1", 0.25, 700.0)
    runs = job(state="RUNNING", nodes="n1", start_time=AT, reason="", restarts=0)
    assert why.of_job(runs, {}, None, low=low).lines[1:] == (
        "the accelerators of n1 were used 25% of the last 11 min 40 s",
        f"what usually helps: {'; '.join(usage.HELPS)}",
    )
