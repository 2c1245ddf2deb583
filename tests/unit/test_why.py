"""Why a job is as it is, and why a node is out: values in, lines out."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from slurm_plugin import grant, why
from slurm_plugin.grant import Grant
from slurm_plugin.slurm import HELD_BY_LIMIT, Node, Queueing
from tests.fakes import job, node

OURS = "slurm_plugin: gpu-check: 3 of 4 GPUs; disk-size shm: 512 MB < 1 GB [job 7] [job 9]"
BAD = node("n2", "IDLE", "DRAIN", reason=OURS)
AT = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
ASKED = "[sp1;retries=3;ib=auto]"
FIRST = {
    "n": 0, "nodes": "n[1-2]", "start": "2026-03-01T09:00:00.000+00:00", "end": "2026-03-01T09:30:00.000+00:00",
    "phase": "program", "code": 5, "cause": "the program failed with exit code 5, and n2 gpu-check: 3 of 4 GPUs",
    "verdicts": {"n2": "gpu-check: 3 of 4 GPUs"}, "action": "requeue",
}  # fmt: skip


def given(**fields: Any) -> str:
    """An admin_comment with this grant."""
    return grant.written("", Grant(**{"granted": 3, **fields}))


RESTARTED = given(requeues=1, counted=0, excluded=("n2",), last="n2: gpu-check: 3 of 4 GPUs")


def test_a_job_that_runs_again() -> None:
    """Where it runs, why it was restarted, what it leaves out, its attempts, and the node that did it."""
    restarted = job(
        state="RUNNING", nodes="n[3-4]", excluded="n2", comment=ASKED, admin_comment=RESTARTED, start_time=AT, reason=""
    )
    assert why.of_job(restarted, {"n2": BAD}, [FIRST]) == why.Answer(
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


def test_a_job_that_is_held() -> None:
    """That its command has failed, until when it is held, and the three commands before all others."""
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


@pytest.mark.parametrize(
    ("fields", "says", "then"),
    [
        ({"reason": "Priority"}, "jobs with a higher priority are before it", "squeue --start -j 7"),
        ({"reason": "BeginTime", "restarts": 0, "start_time": AT},
         "it may not start before the time that was asked for (from 2026-03-01 09:30:00 UTC on)",
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
    ],
)  # fmt: skip
def test_a_job_that_waits(fields: dict[str, Any], says: str, then: str) -> None:
    """Slurm's reason in our words; what is about to happen by itself where that is known; one command."""
    found = why.of_job(job(**fields), {}, None)
    assert says in found.lines[0]
    assert found.then == (then,)


BOUNDED = given(requeues=1, counted=0, deadline="2026-03-01T10:30:00")
HOUR = Queueing(3600, 0, AT + timedelta(hours=1))
LONGER = (
    "for longer: queue_timeout in the spec of the next submission (never: for any time), the site's "
    "recovery.queue_timeout for all jobs, or for this wait an administrator moves its Deadline"
)


@pytest.mark.parametrize(
    ("comment", "queue", "whose", "name"),
    [
        (ASKED, HOUR, "the site's recovery.queue_timeout", "7"),
        ("[sp1;retries=3;ib=auto;q=1800]", HOUR._replace(name="5_2"), "queue_timeout in its spec", "5_2"),
    ],
)
def test_how_long_a_restarted_job_may_wait(comment: str, queue: Queueing, whose: str, name: str) -> None:
    """Until when, whose time that is, how it ends then, and what changes it; a task of an array by its own name."""
    waits = job(reason="Resources", comment=comment, admin_comment=BOUNDED)
    assert why.is_asked(waits)
    found = why.of_job(waits, {}, None, queue=queue)
    assert found.lines[1:3] == (
        f"it may wait until 2026-03-01 09:30:00 UTC for its restart ({whose}), held or not; "
        "Slurm ends it then: DEADLINE",
        LONGER,
    )
    assert found.then == (
        "squeue --start -j 7",
        f"as an administrator: scontrol update JobId={name} Deadline=2099-12-31T00:00:00",
    )


def test_a_job_that_may_wait_for_any_time() -> None:
    """Where an administrator has moved our deadline; without one, and while it runs, nobody asks."""
    waits = job(reason="Resources", comment=ASKED, admin_comment=BOUNDED)
    moved = why.of_job(waits, {}, None, queue=HOUR._replace(deadline=datetime(2099, 12, 31, tzinfo=UTC)))
    assert moved == why.of_job(waits, {}, None)
    assert not any("may wait" in line for line in moved.lines)
    assert not why.is_asked(waits._replace(admin_comment=RESTARTED))
    assert not why.is_asked(waits._replace(state="RUNNING"))


@pytest.mark.parametrize(
    ("fields", "attempts", "says"),
    [
        ({"state": "COMPLETED"}, None, "it ended: its program ended with exit code 0"),
        ({"state": "FAILED", "exit_code": 7}, None, "it ended: it failed, exit code 7"),
        ({"state": "FAILED", "exit_code": None, "exit_signal": 9, "reason": "RaisedSignal:9(Killed)"}, None,
         "it ended: it failed, signal 9 (RaisedSignal:9(Killed))"),
        ({"state": "FAILED", "exit_code": 5}, [{**FIRST, "n": 1, "cause": "no restart is left"}],
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
    ],
)  # fmt: skip
def test_a_job_that_ended(fields: dict[str, Any], attempts: why.Attempts | None, says: str) -> None:
    """The attempt of its last run knows best, one of a run before it nothing; then the grant, then Slurm."""
    found = why.of_job(job(**{"reason": "", **fields}), {}, attempts)
    assert found.lines[0].startswith(says)


def test_an_interactive_job_whose_prolog_failed() -> None:
    """Slurm cancels salloc and srun without a word; the drained node names the job."""
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


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"comment": ASKED}, "it asked for 3 restarts, and none was granted: see slurm-plugin doctor"),
        ({"comment": ASKED, "admin_comment": given(granted=1)}, "it asked for 3 restarts; the site grants 1"),
        ({"comment": "[sp1;retries=3;again=1]", "admin_comment": given(), "restarts": 0},
         "it was restarted once on nodes that it had, without a requeue"),
        ({"admin_comment": given(requeues=1, counted=0, again=1, last="n2: x")},
         "restart 2 of 3 was needed because of n2: x"),
        ({"admin_comment": given(), "restarts": 0}, "none of its 3 restarts was needed so far"),
        ({"admin_comment": RESTARTED, "restarts": 3},
         "it was requeued 2 times for another cause, which costs none of them"),
        ({}, "it was requeued once: by Slurm, its owner, an administrator or a preemption"),
    ],
)  # fmt: skip
def test_restarts(fields: dict[str, Any], line: str) -> None:
    """What was asked for, granted and used; requeues that are not ours are told apart."""
    assert line in why.of_job(job(**fields), {}, None).lines


@pytest.mark.parametrize(
    ("state", "says"),
    [
        ("CONFIGURING", "its nodes boot, or their prologs run: n[1-2]"),
        ("EXPEDITING", "Slurm starts it again at once (--requeue=expedite): n[1-2]"),
        ("RESIZING", "its state is RESIZING: n[1-2]"),
    ],
)
def test_a_job_between(state: str, says: str) -> None:
    """Neither waiting nor ended; a state that has no line of ours is named."""
    assert why.of_job(job(state=state, nodes="n[1-2]"), {}, None).lines[0] == says


def test_a_restart_that_is_not_counted_yet() -> None:
    """While the job completes the worker has not written why: the drained node tells it."""
    found = why.of_job(job(state="COMPLETING", admin_comment=given(), nodes="n[1-2]"), {"n2": BAD}, None)
    assert "its last run ended because of n2: gpu-check: 3 of 4 GPUs; disk-size shm: 512 MB < 1 GB" in found.lines
    assert not any("another cause" in line for line in found.lines)


@pytest.mark.parametrize("attempt", [{}, {"n": [], "start": 7, "end": None, "cause": {"a": 1}, "action": "?"}])
def test_an_attempt_that_its_user_has_edited(attempt: dict[str, Any]) -> None:
    """Is shown as far as it can be."""
    found = why.of_job(job(state="FAILED", reason="", exit_code=1), {}, [attempt])
    assert found.lines[-1].startswith("attempt ")


def test_where_the_attempts_would_be() -> None:
    """Is said of a job of ours that ended and whose cause is not known otherwise."""
    ended = job(state="FAILED", reason="", exit_code=1, comment=ASKED)
    assert why.NO_ATTEMPT in why.of_job(ended, {}, None).lines
    assert why.NO_ATTEMPT not in why.of_job(ended._replace(comment=""), {}, None).lines
    assert why.NO_ATTEMPT not in why.of_job(ended, {}, []).lines


def test_a_job_that_slurm_has_forgotten() -> None:
    """The nodes that name it, and its attempts, still tell; without either nothing is known."""
    assert why.forgotten(8, [BAD, node("n1")], None, "300 s") is None
    found = why.forgotten(7, [BAD, node("n1")], None, "300 s")
    assert found == why.Answer(
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


@pytest.mark.parametrize(
    ("periodic", "passes", "back"),
    [
        (True, 3, "it comes back by itself once it is mended: after 3 good looks in a row of the periodic check"),
        (True, None, "after several good looks in a row"),
        (False, 3, "it does not come back by itself: no periodic check of ours runs here"),
        (None, None, "by our periodic check where the site has one, else by hand"),
    ],
)
def test_a_node_that_we_drained(periodic: bool | None, passes: int | None, back: str) -> None:
    """Each item by itself, the jobs, what gives it back; the command looks at these very items."""
    found = why.of_node(BAD._replace(reason_time=AT), periodic=periodic, passes=passes)
    assert found.state == "IDLE+DRAIN"
    assert found.lines[:5] == (
        "it is drained: it takes no more jobs, those on it go on",
        "slurm_plugin drained it at 2026-03-01 09:30:00 UTC: a check failed",
        "  gpu-check: 3 of 4 GPUs",
        "  disk-size shm: 512 MB < 1 GB",
        "found for job 7, job 9",
    )
    assert back in found.lines[5]
    assert found.then == (
        "on n2: slurm-plugin check gpu-check disk-size.shm", "scontrol update nodename=n2 state=resume",
    )  # fmt: skip


def test_an_event_is_over_after_a_boot_only() -> None:
    """Of an Xid there is one line; no later look makes good for it."""
    lost = BAD._replace(reason="slurm_plugin: gpu-xid: Xid 79 on 0000:52:00: it fell off the bus, reboot the node")
    found = why.of_node(lost, periodic=True, passes=3)
    assert (
        found.lines[-1] == "it comes back by itself after a reboot: after 3 good looks in a row of the periodic check"
    )
    assert found.then[0] == "on n2: slurm-plugin check gpu-xid"


def test_a_node_that_we_drained_and_that_died() -> None:
    """Nothing looks there any more."""
    dead = BAD._replace(states=frozenset({"DOWN", "DRAIN", "NOT_RESPONDING"}))
    found = why.of_node(dead, periodic=True, passes=3)
    assert found.lines[-1] == "it does not come back as long as its slurmd does not answer"
    assert found.state.startswith("DOWN+")


def test_a_node_that_somebody_drained() -> None:
    """Who and when; it is left to them."""
    mine = node("n3", "DRAIN", "MIXED", reason="bad fan [see ticket 4]")._replace(reason_user="ada", reason_time=AT)
    found = why.of_node(mine, periodic=True)
    assert found.lines[1:] == (
        "somebody took it out (ada, 2026-03-01 09:30:00 UTC): bad fan [see ticket 4]",
        "we never change what an administrator wrote; who wrote it gives it back",
    )


def test_a_node_that_slurm_took_out() -> None:
    """In our words, with what to look at."""
    dead = node("n3", "DOWN", "NOT_RESPONDING", reason="Not responding")
    found = why.of_node(dead, periodic=True)
    assert found.lines == (
        "it is down",
        "its slurmd does not answer",
        "Slurm took it out: Not responding",
        "  its slurmd did not answer for SlurmdTimeout",
        "we never give such a node back",
    )
    assert found.then == (
        "ping n3; on it: systemctl status slurmd", "scontrol update nodename=n3 state=resume",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("found", "lines"),
    [
        (node("n1"), ("it is in service: nothing keeps jobs away from it",)),
        (node("n1", reason=OURS), ("it is in service: nothing keeps jobs away from it",
                                   f"what still stands there as its reason is left from before: {OURS}")),
        (node("n1", comment="rack 7 [slurm_plugin: would be drained: dns: x (job 7)]"),
         ("it is in service: nothing keeps jobs away from it",
          "a check failed, and only the site's dry run kept it in service: dns: x (job 7)")),
        (node("n1", reason=" "), ("it is in service: nothing keeps jobs away from it",)),
        (node("n1", "IDLE", "RESERVED"), ("it is reserved: only jobs of the reservation start there",)),
        (node("n1", "DOWN"), ("it is down",)),
    ],
)  # fmt: skip
def test_other_nodes(found: Node, lines: tuple[str, ...]) -> None:
    """One in service has no reason that counts; one without a reason has its state."""
    assert why.of_node(found, periodic=None).lines == lines


def test_the_nodes_to_ask_for() -> None:
    """Those of its run, those left out and those it waits for, each once; what is no list is none."""
    waits = job(nodes="n[1-2]", excluded="n2,n4", reason="ReqNodeNotAvail, UnavailableNodes:n5")
    assert why.unavailable(waits) == ["n1", "n2", "n4", "n5"]
    assert why.unavailable(waits._replace(reason="ReqNodeNotAvail, UnavailableNodes:", excluded="n[")) == ["n1", "n2"]
