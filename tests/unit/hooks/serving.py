"""The controller's worker on a spool of the test's own, with time that passes only while it sleeps."""

from collections.abc import Callable
from pathlib import Path

from slurm_plugin.after_run import NO_POLICY, Ended
from slurm_plugin.grant import Grant, written
from slurm_plugin.hooks import worker
from slurm_plugin.queueing import Policy
from slurm_plugin.slurm import Job
from slurm_plugin.slurm.releases import RELEASES
from tests.fakes import FakeSlurm, job, node

SETTLE_S = RELEASES[0].settle_s
ENDED = Ended(7, 1, ("n1", "n2"))
GRANTED = written("", Grant(3))
BAD = node("n2", "IDLE", "DRAIN", reason="slurm_plugin: gpu-check: x [job 7]")
MOST_SLEEPS = 200  # a worker that sleeps more often in a test does not end


class Clock:
    """Time that passes only while the worker sleeps; `then` is called after each sleep, with its number."""

    def __init__(self, then: Callable[[int], None] = lambda _: None) -> None:
        self.now, self.sleeps, self._then = 1000.0, list[float](), then

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.sleeps.append(seconds)
        assert len(self.sleeps) < MOST_SLEEPS, "the worker does not end"
        self._then(len(self.sleeps))


def given_job(job_id: int = 7, **fields: object) -> Job:
    """A requeued job with three restarts granted."""
    return job(job_id, **{"admin_comment": GRANTED, **fields})


def serve(directory: Path, door: FakeSlurm, clock: Clock | None = None, policy: Policy = NO_POLICY) -> Clock:
    """Serve with time that does not pass by itself."""
    clock = clock or Clock()
    worker.serve(directory, door, policy, clock=clock, sleep=clock.sleep, wall=clock)
    return clock
