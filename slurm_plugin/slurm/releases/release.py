"""What differs between releases of Slurm, as a record: one field for each difference that matters to us."""

from dataclasses import dataclass
from typing import Final

# Until the next second has surely begun: a margin for a clock that is being adjusted.
SECOND_S: Final = 1.02


@dataclass(frozen=True, slots=True)
class Release:
    """One release. What is true of it was seen on it: tests/cluster/test_releases.py looks again."""

    series: tuple[int, int]
    name: str
    # The variables that name a job's nodes in Prolog's environment.
    prolog_node_lists: tuple[str, ...]
    # Whether squeue prints exit_code as wait(2) gives it (1792) and not as code:signal (7:0).
    squeue_prints_wait_status: bool
    # Whether RESUME of a drained idle node removes the reason of the drain.
    resume_clears_reason: bool
    # Whether PrologFlags=DeferBatch without Alloc makes the prologs of all nodes run.
    defer_batch_implies_alloc: bool
    # After how many failed prologs of one job Slurm holds it in spite of nohold_on_prolog_fail; None: never.
    # It is MaxBatchRequeue's default. Requeues by scontrol and deaths of nodes do not count, runs between the failures
    # do not clear the count, `scontrol release` does.
    launch_failure_limit: int | None
    # Whether a job is refused when slurm_job_submit in job_submit.lua ends with a runtime error.
    lua_error_refuses_job: bool
    # Whether an EpilogSlurmctld that was not set when slurmctld started runs after `scontrol reconfigure`.
    reconfigure_starts_epilog_slurmctld: bool
    # Whether Prolog, Epilog and EpilogSlurmctld may stand several times in slurm.conf, and all of them run.
    hooks_repeat: bool
    # How many seconds a requeued job must have been pending before it may start on nodes of its last run, whose slurmd
    # still knows the revoked credential; and whether the next second of the controller's clock must have begun.
    settle_s: float
    settle_second: bool
    # Whether `--requeue=expedite` exists (and is granted where SlurmctldParameters=enable_expedited_requeue is set).
    expedited_requeue: bool

    def settles_in(self, pending_at: float) -> float:
        """Seconds until a requeued job may start, from `pending_at` on, when the controller's clock sees it pending."""
        return max(self.settle_s, SECOND_S - pending_at % 1 if self.settle_second else 0.0)

    @property
    def settling(self) -> str:
        """How long that is, in words."""
        if self.settle_s:
            return f"{self.settle_s} s"
        return "until the next second" if self.settle_second else "none"
