"""After a run: the job's deadline and Nice, set with a restart by the plugin and restored with any other restart."""

from dataclasses import replace
from datetime import UTC, datetime

from slurm_plugin.controller.queue_limits import Policy
from slurm_plugin.controller.requeue_policy import Amend, Count, Drop, Start, Step, Wait, step
from slurm_plugin.records.grant import Grant, written
from slurm_plugin.slurm import HELD_BY_LIMIT, Node, Queueing
from tests import fakes
from tests.unit.controller.requeued import BAD, COUNTED, ENDED_RUN, FINE, NODES, NOT_OURS, SETTLE_S, bare, given_job

NOW = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)
WAITS = Policy(queue_timeout_s=1800, nice=1000)
# A run after a restart by the plugin, which had set a deadline and a Nice. The next requeue is the second.
AFTER_ONE = Grant(3, 1, ("n9",), "2026-02-01T10:30:00", "n9: x", 0, nice=(0, -1000))
STALE = Queueing(3600, 0, datetime(2026, 2, 1, 10, 30, tzinfo=UTC), -1000)
GONE = {"Deadline": "2099-12-31T00:00:00"}
UNBOUND, UNPLACED = replace(AFTER_ONE, deadline=""), replace(AFTER_ONE, deadline="", nice=())
MARKED = "[sp1;retries=3;run=1;x=0]"
BOTH = Grant(3, 2, ("n9", "n2"), "2026-03-01T10:30:00", "n2: gpu-check: 3 of 4 GPUs", 1, nice=(0, -1000))
BY_MARK = Grant(3, 2, ("n9", "n1"), "2026-03-01T10:30:00", "n1: failed this job's own check", 1, kept=("n1",), nice=())
LEFT = "gpu-processes: left on the job's GPUs: pid 9 of ada on 0000:3B:00.0"
WAIT = {"Deadline": "2026-03-01T10:30:00", "TimeLimit": "60"}
QUEUE: dict[str, tuple[dict[str, object], dict[str, Node], Step]] = {
    "completing, a deadline of ours": ({"state": "COMPLETING"}, NODES, Amend(UNBOUND, GONE)),
    "completing, its first run after ours": ({"state": "COMPLETING", "restarts": 1}, NODES, Wait()),
    "held": ({"reason": "JobHeldAdmin"}, NODES, Amend(UNBOUND, GONE)),
    "not ours": ({}, FINE, Amend(UNPLACED, GONE | {"Nice": "0"})),
    "not ours, held by Slurm's limit: a Nice would let it go": ({"reason": HELD_BY_LIMIT}, FINE, Amend(UNBOUND, GONE)),
    "not ours, and it runs again: nothing of it can be changed": ({"state": "RUNNING"}, FINE, NOT_OURS),
    "ours by root's verdict": ({}, NODES, Count(BOTH, ("n2",), WAIT)),
    "ours by root's verdict on a process that the job's user may have left there": (
        {},
        {"n2": fakes.node("n2", "IDLE", "DRAIN", reason=BAD.replace("gpu-check: 3 of 4 GPUs", LEFT))},
        Count(replace(BOTH, last=f"n2: {LEFT}", nice=()), ("n2",), {**WAIT, "Nice": "0"}),
    ),
    "ours by a node's death": (
        {},
        {"n1": fakes.node("n1", "DOWN")},
        Count(replace(BOTH, excluded=("n9", "n1"), last="n1: the node went down"), ("n1",), WAIT),
    ),
    "ours by the job's own word alone": ({"comment": MARKED}, FINE, Count(BY_MARK, ("n1",), {**WAIT, "Nice": "0"})),
    "its own wait": (
        {"comment": "[sp1;retries=3;q=60]"},
        NODES,
        Count(
            replace(BOTH, deadline="2026-03-01T10:01:00"),
            ("n2",),
            {"Deadline": "2026-03-01T10:01:00", "TimeLimit": "60"},
        ),
    ),
    "its own wait is without an end": (
        {"comment": "[sp1;retries=3;q=0]"},
        NODES,
        Count(replace(BOTH, deadline=""), ("n2",), GONE),
    ),
    "runs again, unseen": (
        {"state": "RUNNING"},
        NODES,
        Count(replace(AFTER_ONE, requeues=2, counted=1, excluded=("n9", "n2"), last=BOTH.last), ("n2",)),
    ),
}


def test_its_place_in_the_queue() -> None:
    """They are set with the plugin's restart and restored with any other. A user's report alone lowers no Nice."""
    for what, (fields, nodes, expected) in QUEUE.items():
        job = given_job(**{"grant": AFTER_ONE, "restarts": 2, **fields})  # type: ignore[arg-type]
        again = {"settle_s": SETTLE_S, "policy": WAITS, "now": NOW}
        found = step(ENDED_RUN, job, nodes, [], 0, queue=STALE, **again)  # type: ignore[arg-type]
        assert bare(found) == expected, what
        assert step(ENDED_RUN, job, nodes, [], 0, queue=None, **again) == Wait(), what  # type: ignore[arg-type]
        if isinstance(found, Amend):  # once: the next check finds nothing to restore
            job = job._replace(admin_comment=written("", found.grant))
            after = step(ENDED_RUN, job, nodes, [], 0, queue=STALE, **again)  # type: ignore[arg-type]
            assert not isinstance(after, Amend), what
            assert isinstance(after, Count) == (what == "held"), what
            assert not isinstance(after, Count) or not after.fields, what  # a Nice would release it


def test_the_nice_comes_with_the_start() -> None:
    """Not before: a new Nice would release a job that Slurm holds."""
    job = given_job(grant=replace(COUNTED, nice=(0, -1000)))
    assert step(ENDED_RUN, job, NODES, [], SETTLE_S, settle_s=SETTLE_S) == Start({"Nice": "-1000"})


def test_an_elastic_job_waits_for_no_more_nodes_than_when_it_was_submitted() -> None:
    """Slurm 22.05 keeps the tasks of the last allocation, so the number at submission is restored.

    So it is after a restart by the plugin, a preemption or its owner's requeue, also while the job is held: a release
    is followed by no other update. A new NumTasks does not release it. The tasks of a running job cannot be changed.
    """
    held, tasks = {"reason": "JobHeldUser"}, {"NumTasks": "10"}
    cases: list[tuple[dict[str, object], dict[str, Node], int, type[Step], dict[str, str]]] = [
        ({}, NODES, 3, Count, tasks),
        (held, NODES, 3, Count, tasks),
        ({"state": "RUNNING"}, NODES, 3, Count, {}),
        ({}, FINE, 3, Drop, tasks),
        (held, FINE, 3, Drop, tasks),
        ({"state": "RUNNING"}, FINE, 3, Drop, {}),
        (held, FINE, 0, Drop, tasks),
    ]
    for fields, nodes, granted, kind, changes in cases:
        job = given_job(**{"grant": Grant(granted, tasks=10), **fields})  # type: ignore[arg-type]
        found = step(ENDED_RUN, job, nodes, [], 0, settle_s=SETTLE_S)
        assert isinstance(found, Count | Drop), fields
        assert (type(found), found.fields) == (kind, changes), fields
