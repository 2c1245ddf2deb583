"""Restarts of a job on a site that grants none: how they are counted, and what the owner changes in Slurm."""

import signal
from collections.abc import Sequence
from typing import Any

import pytest

from slurm_plugin.records import grant
from slurm_plugin.slurm import Queueing, SlurmError
from slurm_plugin.supervisor.requeue import by_owner
from tests.fakes import FakeSlurm, job

COMMENT = "[sp1;retries=3;ib=auto]"


def soon(seconds: int = 2) -> tuple[Any, ...]:
    """Return the second change of the start."""
    return ("update_job", 7, {"StartTime": f"now+{seconds}"})


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Pass the time at once: the sum of this list, in seconds."""
    slept = [0.0]
    monkeypatch.setattr(by_owner.time, "sleep", slept.append)
    monkeypatch.setattr(by_owner.time, "monotonic", lambda: sum(slept))
    return slept


def line(restart: int, action: str) -> dict[str, Any]:
    """Return the line of an attempt, as far as it counts."""
    return {"restart": restart, "action": action}


@pytest.mark.parametrize(
    ("restarts", "lines", "left"),
    [
        (0, [], 3),
        (0, [line(0, "again"), line(0, "again")], 1),
        (1, [line(0, "requeue")], 2),
        (1, [line(0, "again"), line(0, "requeue"), line(1, "again")], 0),
        (1, [], 2),  # the first run died with its node
        (1, [line(0, "again")], 1),  # and did so after a restart in place
        (1, [line(0, "finish")], 3),  # a preemption, or a requeue by the owner
        (3, [line(0, "requeue"), line(1, "finish"), line(2, "requeue")], 1),
        (1, [line(0, "hold")], 2),  # a node died while the job was held
        (3, [line(1, "requeue")], 0),
        (9, [], 0),
        (1, [{"restart": "x", "action": ["again"]}], 3),  # a user's file may have any content
    ],
)
def test_restarts_that_are_left(restarts: int, lines: list[dict[str, Any]], left: int) -> None:
    """Restarts in place, requeues that were recorded, and runs that left no record."""
    assert grant.of_owner(job(restarts=restarts, comment=COMMENT), 3, lines).left == left


def test_a_trials_restarts() -> None:
    """Restarts in place of an earlier trial count for that one; requeues count for the job."""
    lines = [{**line(0, "again"), "trial": 1}, {**line(0, "requeue"), "trial": 2}, {**line(1, "again"), "trial": 2}]
    had = job(restarts=1, comment=COMMENT)
    assert [grant.of_owner(had, 3, lines, trial).left for trial in (1, 2, 3)] == [1, 1, 2]


def settings(**values: str) -> FakeSlurm:
    """Return a Slurm with job 7 and these settings."""
    door = FakeSlurm([job(7, state="RUNNING", nodes="n[1-2]", excluded="n5", comment=COMMENT)])
    door.settings |= values
    return door


@pytest.mark.parametrize(("epilog", "wait_s"), [("(null)", 5), ("", 5), ("/etc/slurm/epilog", 20)])
def test_the_requeue(epilog: str, wait_s: int) -> None:
    """It adds to the excluded nodes, and sets the start after the end of COMPLETING. SIGTERM is as before."""
    door, before = settings(Epilog=epilog), signal.getsignal(signal.SIGTERM)
    by_owner.requeue(door, 7, door.job(7).restarts, ["n2"], tasks=4)
    fields = {"ExcNodeList": "n[5,2]", "NumTasks": "4", "StartTime": f"now+{wait_s}"}
    assert door.changes == [("requeue", 7), ("update_job", 7, fields), soon(2 if wait_s == 5 else 5)]
    assert signal.getsignal(signal.SIGTERM) == before


def test_the_requeue_of_a_job_that_requires_a_node(capsys: pytest.CaptureFixture[str]) -> None:
    """Slurm would never start it without that node."""
    door = settings()
    door.queues[7] = Queueing(required="n[1-2]")
    by_owner.requeue(door, 7, door.job(7).restarts, ["n2", "n3"])
    assert door.changes[-2] == ("update_job", 7, {"ExcNodeList": "n[5,3]", "StartTime": "now+5"})
    assert "asks for n2 by name (nodelist), so it gets no other node instead" in capsys.readouterr().out


@pytest.mark.parametrize(("state", "changed"), [("COMPLETING", True), ("PENDING", True), ("RUNNING", False)])
def test_a_job_that_slurm_has_requeued(state: str, changed: bool) -> None:
    """Because a node went down, or because the answer to a request was lost: it is only changed. A later run is not."""
    door = FakeSlurm([job(7, state=state, restarts=1, comment=COMMENT)])
    by_owner.requeue(door, 7, 0, ["n2"])
    first = ("update_job", 7, {"ExcNodeList": "n2", "StartTime": "now+5"})
    assert door.changes == ([first, soon()] if changed else [])


@pytest.mark.parametrize(
    ("had", "seen", "epilog", "wait_s"),
    [
        ("n[1-2]", ["n[1-2]", "n[1-2]", "n1"], "", 2),
        ("n1", ["n1"], "", 2),
        ("n[1-2]", ["n[1-2]"], "", 0),  # another node does not end it
        ("n[1-2]", ["n1"], "/epilog", 5),
        ("n[1-2]", ["n[1-2]"] * 10 + ["n1"], "/epilog", 10),
        ("n[1-2]", ["n[1-2]"] * 60 + ["n1"], "/epilog", 0),
        ("n1", ["n1"], "/epilog", 0),  # how long it takes is not known
    ],
)
def test_the_start(
    monkeypatch: pytest.MonkeyPatch, clock: list[float], had: str, seen: Sequence[str], epilog: str, wait_s: int
) -> None:
    """It is set anew when the other nodes have ended the job, at least a second after the first change."""
    door, nodes = settings(Epilog=epilog), [had, *seen]
    job_then = door.job(7)._replace(state="COMPLETING")
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    monkeypatch.setattr(door, "job", lambda _: job_then._replace(nodes=nodes.pop(0) if len(nodes) > 1 else nodes[0]))
    by_owner.requeue(door, 7, 0, [])
    assert door.changes[1:] == ([soon(wait_s)] if wait_s else [])
    assert sum(clock) <= (13 if epilog else 4)


def test_a_requeue_that_leaves_out_no_node() -> None:
    """At the time limit: it starts soon all the same."""
    door = FakeSlurm([job(7, state="RUNNING", nodes="n1", comment=COMMENT)])
    by_owner.requeue(door, 7, door.job(7).restarts, [])
    assert door.changes == [("requeue", 7), ("update_job", 7, {"StartTime": "now+5"}), soon()]


def test_nodes_that_were_given_up() -> None:
    """A run in the same allocation went on without them. The next run is on other nodes than these."""
    lines = [{**line(0, "again"), "verdicts": {"n2": "gpu-check: 3 of 4 GPUs"}}, {**line(1, "again"), "verdicts": {}}]
    assert by_owner.given_up(lines, 0) == ["n2"]
    assert by_owner.given_up(lines, 1) == []


def test_what_slurm_does_not_change(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The job starts soon all the same, and without its bad nodes if Slurm refuses the number of tasks alone."""
    door, told = settings(), []

    def update(_job: int, **fields: str) -> None:
        told.append(fields)
        if "ExcNodeList" in fields:
            raise SlurmError("Requested node configuration is not available")

    monkeypatch.setattr(door, "update_job", update)
    by_owner.requeue(door, 7, door.job(7).restarts, ["n2"], tasks=4)
    assert [[*each] for each in told] == [
        ["ExcNodeList", "NumTasks", "StartTime"],
        ["ExcNodeList", "StartTime"],
        ["StartTime"],
        ["StartTime"],
    ]
    assert "could not change the requeued job: Requested node" in capsys.readouterr().out


@pytest.mark.parametrize(("mode", "closed"), [("OFF", True), ("", True), ("REQUEUE", False), ("GANG,SUSPEND", False)])
def test_the_last_restart(mode: str, closed: bool) -> None:
    """Slurm no longer requeues the job, except on a cluster where a preempted job is requeued."""
    door = settings(PreemptMode=mode)
    by_owner.forbid_requeue(door, door.job(7))
    assert door.changes == ([("update_job", 7, {"Requeue": "0"})] if closed else [])


def test_a_comment_without_a_token() -> None:
    """The site's own job_submit.lua has replaced it: who knows the job's plan still counts its restarts."""
    replaced = job(comment="the site's")
    assert grant.is_alone(replaced, retries=1)
    assert not grant.is_alone(replaced)
    assert not grant.is_alone(replaced._replace(admin_comment=grant.written("", grant.Grant())), retries=1)
