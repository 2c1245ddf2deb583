"""A job that was requeued after its run on two nodes, of which the second is drained."""

from slurm_plugin.after_run import Drop, Ended
from slurm_plugin.grant import Grant, written
from slurm_plugin.slurm import Job
from tests import fakes

SETTLE_S = 1.2
ENDED_RUN = Ended(7, 1, ("n1", "n2"))
BAD = "slurm_plugin: gpu-check: 3 of 4 GPUs [job 7]"
NODES = {"n1": fakes.node("n1"), "n2": fakes.node("n2", "IDLE", "DRAIN", reason=BAD)}
FINE = {"n1": fakes.node("n1"), "n2": fakes.node("n2")}
THREE = Grant(3)
COUNTED = Grant(3, 1, ("n2",), "", "n2: gpu-check: 3 of 4 GPUs", 0)
NOT_OURS = Drop("this requeue is not ours")


def given_job(state: str = "PENDING", *, grant: Grant | None = THREE, **fields: object) -> Job:
    """A job that was requeued once, with this grant."""
    return fakes.job(state=state, admin_comment="" if grant is None else written("", grant), **fields)
