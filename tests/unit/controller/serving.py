"""The controller's worker with the test's spool, and a clock that only `sleep` advances."""

from collections.abc import Callable
from pathlib import Path

from slurm_plugin.controller import requeue_worker
from slurm_plugin.controller.queue_limits import Policy
from slurm_plugin.controller.requeue_policy import NO_POLICY, Ended
from slurm_plugin.records.grant import Grant, written
from slurm_plugin.slurm import Job
from slurm_plugin.slurm.releases import RELEASES
from tests.fakes import FakeSlurm, job, node

SETTLE_S = RELEASES[0].settle_s
ENDED = Ended(7, 1, ("n1", "n2"))
GRANTED = written("", Grant(3))
BAD = node("n2", "IDLE", "DRAIN", reason="slurm_plugin: gpu-check: x [job 7]")
MOST_SLEEPS = 200  # if a worker sleeps more often, it would never end


class Clock:
    """A clock that only `sleep` advances. It calls `then` after each sleep, with the number of sleeps."""

    def __init__(self, then: Callable[[int], None] = lambda _: None) -> None:
        self.now, self.sleeps, self._then = 1000.0, list[float](), then

    def monotonic(self) -> float:
        return self.now

    time = monotonic

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.sleeps.append(seconds)
        assert len(self.sleeps) < MOST_SLEEPS, "the worker does not end"
        self._then(len(self.sleeps))


def given_job(job_id: int = 7, **fields: object) -> Job:
    """Return a requeued job with three granted restarts."""
    return job(job_id, **{"admin_comment": GRANTED, **fields})


def serve(directory: Path, door: FakeSlurm, clock: Clock | None = None, policy: Policy = NO_POLICY) -> Clock:
    """Run the worker with a fake clock."""
    clock = clock or Clock()
    requeue_worker.serve(directory, door, policy, clock=clock)
    return clock
