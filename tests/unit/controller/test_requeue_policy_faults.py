"""After a run: who requeued the job, and which nodes the next run excludes."""

from slurm_plugin.controller.queue_limits import Policy
from slurm_plugin.controller.requeue_policy import Count, ends_reservation, faults, step
from slurm_plugin.records.grant import Grant
from slurm_plugin.slurm import Queueing
from tests import fakes
from tests.unit.controller.requeued import BAD, ENDED_RUN, FINE, NODES, NOT_OURS, SETTLE_S, given_job

FAULTS = {
    "our drain for this job": ({"n2": NODES["n2"]}, "", {"n2": "gpu-check: 3 of 4 GPUs"}),
    "our drain for another job": (
        {"n2": fakes.node("n2", "DRAIN", reason=BAD.replace("7]", "77]"))},
        "",
        None,
    ),
    "our drain for several jobs, this one among them": (
        {"n2": fakes.node("n2", "DRAIN", reason=f"{BAD} [job 9]")},
        "",
        {"n2": "gpu-check: 3 of 4 GPUs"},
    ),
    "an administrator's drain that names the job": (
        {"n2": fakes.node("n2", "DRAIN", reason="looked into [job 7]")},
        "",
        None,
    ),
    "a node that went down": ({"n1": fakes.node("n1", "DOWN", "NOT_RESPONDING")}, "", {"n1": "the node went down"}),
    "an unreadable node": ({"n1": fakes.node("n1", "UNKNOWN")}, "", None),
    "a node that was not in the run": ({"n9": NODES["n2"]._replace(name="n9")}, "", None),
    "the mark of this run": (FINE, "[sp1;retries=3;run=0;x=1]", {"n2": "failed this job's own check"}),
    "the mark of another run": (FINE, "[sp1;retries=3;run=1;x=1]", None),
    "the mark of this run, forged far beyond its nodes": (FINE, "[sp1;retries=3;run=0;x=2,999999]", {}),
    "a mark of a job that was slow": (
        FINE,
        "[sp1;retries=3;run=0;x=0;move=1]",
        {"n1": "failed this job's own check", "n2": "the job was slow there"},
    ),
    "a mark of a slow job in another run": (FINE, "[sp1;retries=3;run=1;move=1]", None),
    "a mark in a broken token": (FINE, "[sp1;retries=3;run=0;x=1;x=0]", None),
    "a mark and a drain on the same node": (NODES, "[sp1;retries=3;run=0;x=1]", {"n2": "gpu-check: 3 of 4 GPUs"}),
    "a mark and a drain on two nodes": (
        NODES,
        "[sp1;retries=3;run=0;x=0]",
        {"n2": "gpu-check: 3 of 4 GPUs", "n1": "failed this job's own check"},
    ),
}


def test_faults() -> None:
    """Only a drain that names the job, a node that went down, or this run's mark make a requeue the plugin's."""
    for what, (nodes, comment, expected) in FAULTS.items():
        assert faults(ENDED_RUN, given_job(comment=comment), nodes) == expected, what


def test_a_run_that_ended_with_fewer_nodes_has_lost_one() -> None:
    """Slurm removed it from the job, and no process could mark the job; another run's mark counts for nothing."""
    had = "[sp1;retries=3;had={}]".format
    found = step(ENDED_RUN, given_job(comment=had("0.3")), FINE, (), 9, settle_s=SETTLE_S)
    assert isinstance(found, Count)
    assert (found.grant.last, found.excluded) == ("a node of it: the node went down", ())
    for other in ("0.2", "1.3", "7.9"):
        assert step(ENDED_RUN, given_job(comment=had(other)), FINE, (), 9, settle_s=SETTLE_S) == NOT_OURS


def test_a_node_is_left_out_for_as_long_as_it_is_out() -> None:
    """The next restart uses a node again that is in service, unless it failed the job's own check."""
    out = Grant(9, 2, ("n5", "n6", "n7"), "", "x", -1, kept=("n6",))
    nodes = {**NODES, "n5": fakes.node("n5"), "n6": fakes.node("n6"), "n7": fakes.node("n7", "IDLE", "DRAIN")}
    found = step(ENDED_RUN, given_job(grant=out), nodes, ("n5", "n6", "n7", "n8"), 9, settle_s=SETTLE_S)
    assert isinstance(found, Count)
    assert found.grant.excluded == ("n6", "n7", "n2")
    assert found.excluded == ("n6", "n7", "n8", "n2")
    unknown = step(ENDED_RUN, given_job(grant=out), NODES, ("n5", "n6"), 9, settle_s=SETTLE_S)
    assert isinstance(unknown, Count)
    assert unknown.excluded == ("n5", "n6", "n2")


def test_a_node_that_the_job_requires_is_never_left_out() -> None:
    """Slurm would never start the job, not even when the node is back. A drain keeps the job away until then."""
    job, required = given_job(comment="[sp1;retries=3;run=0;x=0]"), Queueing(required="n[1-3]")
    found = step(ENDED_RUN, job, NODES, ("n8",), 9, settle_s=SETTLE_S, queue=required)
    assert isinstance(found, Count)
    assert (found.grant.excluded, found.excluded) == ((), ("n8",))
    assert "n2: gpu-check: 3 of 4 GPUs" in found.grant.last


def test_what_failed_a_jobs_own_check_stays_out() -> None:
    """It has no drain, so nothing says when it works again."""
    job = given_job(comment="[sp1;retries=3;run=0;x=0]")
    found = step(ENDED_RUN, job, FINE, (), 9, settle_s=SETTLE_S)
    assert isinstance(found, Count)
    assert (found.grant.excluded, found.grant.kept) == (("n1",), ("n1",))


def test_where_a_job_was_slow() -> None:
    """It may run there again after its next requeue. Its own word does not lower its Nice."""
    job = given_job(comment="[sp1;retries=3;run=0;move=1]")
    found = step(ENDED_RUN, job, FINE, (), 9, settle_s=SETTLE_S, policy=Policy(nice=1000))
    assert isinstance(found, Count)
    assert (found.grant.excluded, found.grant.kept, found.grant.nice) == (("n1", "n2"), (), ())
    assert found.excluded == ("n1", "n2")
    assert ends_reservation(found)
    found = step(
        ENDED_RUN, given_job(grant=Grant(3, excluded=("n9",)), comment=job.comment), FINE, (), 9, settle_s=SETTLE_S
    )
    assert isinstance(found, Count)
    assert found.grant.excluded == ("n1", "n2", "n9")  # a long list loses its first names
