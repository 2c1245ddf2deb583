"""A job that was requeued after a run on two nodes. The second node is drained."""

from dataclasses import replace

from slurm_plugin.controller.requeue_policy import Cancel, Count, Drop, Ended, Step
from slurm_plugin.records.grant import Grant, written
from slurm_plugin.slurm import Job
from tests import fakes

SETTLE_S = 1.2
ENDED_RUN = Ended(7, 1, ("n1", "n2"))
BAD = "slurm_plugin: gpu-check: 3 of 4 GPUs [job 7]"
NODES = {"n1": fakes.node("n1"), "n2": fakes.node("n2", "IDLE", "DRAIN", reason=BAD)}
FINE = {"n1": fakes.node("n1"), "n2": fakes.node("n2")}
THREE = Grant(3)
COUNTED = Grant(3, 1, ("n2",), "", "n2: gpu-check: 3 of 4 GPUs", 0)
NOT_OURS = Drop("it was requeued by Slurm, its owner or an administrator")


def given_job(state: str = "PENDING", *, grant: Grant | None = THREE, **fields: object) -> Job:
    """Return a job that was requeued once and has this grant."""
    return fakes.job(state=state, admin_comment="" if grant is None else written("", grant), **fields)


def bare(step: Step) -> Step:
    """Return the step with a grant without `runs`, which tests/unit/controller/test_requeue_policy_told.py covers."""
    return replace(step, grant=replace(step.grant, runs=())) if isinstance(step, Count | Cancel) else step
