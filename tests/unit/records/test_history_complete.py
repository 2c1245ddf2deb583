"""Every run of a job: from its script's records, the grant, and Slurm."""

from datetime import UTC, datetime
from typing import Any

from slurm_plugin.records import history
from slurm_plugin.records.grant import Grant, Run, written
from slurm_plugin.records.history import OTHERS, complete, restarts
from tests.fakes import job

AT = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
TOLD = "2026-03-01T09:20:00"
PROLOG = Grant(3, 1, counted=0, last="n2: x").with_run(Run(0, "n[1-2]", TOLD, "n2: x"))
OURS = written("", Grant(3))


def line(n: int, restart: int, action: str, **fields: object) -> dict[str, Any]:
    """Return an attempt as a script records it."""
    known = {"n": n, "restart": restart, "nodes": "n1", "code": 1, "cause": "it failed", "phase": "program"}
    return {**known, "action": action, **fields}


def short(attempts: list[dict[str, Any]], **fields: Any) -> list[tuple[object, ...]]:
    """Return number, run, what followed and the cause."""
    found = complete(attempts, job(**{"reason": "", "restarts": 0, **fields}))
    return [(each["n"], each["restart"], each["action"], each["cause"]) for each in found]


def test_a_run_that_no_script_saw() -> None:
    """It is read from the grant: its nodes, when it ended and why."""
    (found,) = complete([], job(state="RUNNING", restarts=1, admin_comment=written("", PROLOG)))
    assert found == {
        "n": 0, "restart": 0, "nodes": "n[1-2]", "start": None, "end": f"{TOLD}+00:00", "phase": None, "code": None,
        "cause": "n2: x", "progress": None, "verdicts": {}, "action": "requeue",
    }  # fmt: skip
    assert history.sentence(found) == ("attempt 0 on n[1-2], until 2026-03-01 09:20:00: n2: x; then it was requeued")
    assert history.rows([found])[1][2:] == ("?", "n[1-2]", "-", "requeued", "n2: x")
    assert history.rows([found])[1][1].startswith("until 2026-03-01 ")


def test_where_it_stands() -> None:
    """Between the attempts of the runs before and after it. Its number follows the earlier one."""
    given = written("", PROLOG.with_run(Run(1, "n1", TOLD, "n1: y")))
    recorded = [line(0, 0, "again"), line(1, 0, "requeue"), line(3, 2, "fail")]
    assert short(recorded, restarts=2, admin_comment=given, state="FAILED") == [
        (0, 0, "again", "it failed"),
        (1, 0, "requeue", "it failed"),
        (2, 1, "requeue", "n1: y"),
        (3, 2, "fail", "it failed"),
    ]


def test_an_attempt_that_died_with_its_node() -> None:
    """The earlier attempt of the same run is recorded. If it was told to end, the cause is listed."""
    down = written("", Grant(3, 1, counted=0).with_run(Run(0, "n1", TOLD, "n1: the node went down")))
    asks = {"restarts": 1, "admin_comment": down, "state": "RUNNING"}
    assert short([line(0, 0, "again")], **asks)[1] == (1, 0, "requeue", "n1: the node went down")
    for action in ("finish", "hold"):
        assert short([line(0, 0, action)], **asks) == [(0, 0, "requeue", "it failed: n1: the node went down")]


def test_the_run_after_which_no_restart_was_left() -> None:
    """It is the last one: Slurm's requeue of it was cancelled, and is no restart."""
    over = Grant(1, 1, counted=0, last="no restart left after n3: z").with_run(Run(0, "n2", TOLD, "n2: y"))
    over = over.with_run(Run(1, "n3", TOLD, "n3: z"))
    ended = {"state": "CANCELLED", "restarts": 2, "admin_comment": written("", over)}
    assert short([], **ended) == [(0, 0, "requeue", "n2: y"), (1, 1, "cancel", "no restart left after n3: z")]
    assert restarts(job(**ended)) == 1


def test_requeues_for_another_cause() -> None:
    """They are listed if requested and if Slurm counted them. They belong to no recorded run."""
    asks = {"state": "RUNNING", "restarts": 2, "admin_comment": OURS}
    told = f"it was told to end: {OTHERS}"
    recorded = [line(0, 0, "finish", cause="it was told to end")]
    assert short(recorded, **asks) == [(0, 0, "requeue", told), (1, 1, "requeue", OTHERS)]
    assert [each["n"] for each in complete(recorded, job(**asks), slurms=False)] == [0]


def test_the_last_run() -> None:
    """If its script could not record the end, Slurm's state: cancelled, over its time limit, its node dead."""
    ran = {"nodes": "n1", "start_time": AT, "end_time": AT, "admin_comment": OURS}
    cases = [
        ({"state": "CANCELLED", "exit_code": None, "exit_signal": 15}, 143, "cancel", "somebody cancelled it"),
        ({"state": "NODE_FAIL", "exit_code": 0}, 0, "fail", "a node of it died"),
        ({"state": "COMPLETED", "exit_code": 0}, 0, "finish", "its program ended with exit code 0"),
    ]
    for fields, code, action, cause in cases:
        asks = {**ran, "reason": "", "restarts": 0, **fields}
        (found,) = complete([], job(**asks))
        assert (found["code"], found["action"]) == (code, action), fields
        assert found["cause"].startswith(cause), fields
        assert found["start"] == found["end"] == AT.isoformat()
        assert complete([], job(**asks), slurms=False) == []
        assert complete([], job(**{**asks, "nodes": ""})) == [], "it never began"
    recorded = line(0, 0, "finish", code=0, cause="it was told to end")
    (found,) = complete([recorded], job(**{**ran, "restarts": 0, **cases[0][0]}))
    assert (found["code"], found["action"]) == (143, "cancel")
    assert found["cause"].startswith("it was told to end: somebody cancelled it")
    assert recorded["code"] == 0  # what was recorded is left alone
    assert complete([line(0, 0, "hold")], job(**{**ran, "restarts": 0, "state": "FAILED"}))[0]["action"] == "hold"


def test_a_job_that_is_none_of_ours() -> None:
    """It has no attempts. A job that Slurm has forgotten has only recorded ones."""
    assert complete([], job(state="COMPLETED", nodes="n1")) == []
    assert complete([line(0, 0, "again")], None) == [line(0, 0, "again")]


def test_lines_that_a_user_wrote() -> None:
    """A user's own numbers do no harm."""
    assert history.runs([{"n": "x"}, {"restart": []}, {"restart": 10**9}, {}]) == [0, 0, 10**9, 10**9]
    assert len(complete([{"n": "x"}, {"restart": -5, "action": {}}], job(restarts=1, admin_comment=OURS))) == 2


def test_restarts() -> None:
    """Of both kinds, whoever requeued the job."""
    cases = [
        ({"restarts": 0}, 0),
        ({"restarts": 2}, 2),
        ({"restarts": 1, "comment": "[sp1;retries=3;again=2]"}, 3),
        ({"restarts": 1, "admin_comment": written("", Grant(3, 1, again=1, counted=0))}, 2),
    ]
    for fields, count in cases:
        assert restarts(job(**fields)) == count, fields
