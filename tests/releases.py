"""Observations of each release of Slurm, beyond the differences that the product itself handles.

tests/cluster/test_releases*.py check them on the installed Slurm, and tests/unit/test_docs.py compares
docs/reference/releases.md with them.

Seen on 22.05.8 (Debian bookworm), and not recorded below:
- `squeue -O` does not know ExcNodes; `squeue -o %x` does.
- After RESUME, an idle node counts as not responding until it answers again.
- Within two seconds after the end of a job, Slurm may skip a prolog on a node of the job's last run. slurmd drains that
  node after 20 s.
- A reconfigure may change or remove an EpilogSlurmctld that was set when slurmctld started.
- `scontrol show config` names the hooks `Prolog`, `EpilogSlurmctld`.

Seen on 24.11.5 (Debian trixie):
- RESUME with an empty reason does not clear the reason, so an idle node may show an old one.
- The fifth failed prolog of a job holds it (MaxBatchRequeue): state REQUEUE_HOLD, priority 0. SlurmUser may release it,
  its owner may not; the count then begins again.
- `scontrol show config` names the hooks `Prolog[0]`, `EpilogSlurmctld[0]`.

Seen on 26.05.5 (Debian forky), otherwise as 24.11:
- A batch script has SLURM_STEP_ID=-5. In earlier releases only steps had that variable.
- `sbatch --requeue=expedite` exists since 25.11, and is refused without SlurmctldParameters=enable_expedited_requeue.
  Such a job runs again immediately, however it was requeued. If its node died, or if its script failed and then an
  epilog, its state is EXPEDITING until it runs: only SlurmUser may update it. If its script failed and every epilog
  passed, it stays in REQUEUE_HOLD, "job requeued in held state", until it is released.

Seen on all: with PrologFlags=Alloc,DeferBatch the batch script waits for the prologs of all nodes, but if one fails,
Slurm starts the script for a moment (9 of 10 times). HealthCheckProgram gets only SLURMD_NODENAME in its environment.
"""

from dataclasses import dataclass, fields
from typing import Final

from slurm_plugin.slurm import releases
from slurm_plugin.slurm.releases import Release


@dataclass(frozen=True, slots=True)
class Observed(Release):
    """A release with all that the tests know about it."""

    # Variables of Prolog's environment that name the job's nodes.
    prolog_node_lists: tuple[str, ...]
    # squeue prints exit_code as a wait status (1792) and not as code:signal (7:0).
    squeue_prints_wait_status: bool
    # RESUME of a drained idle node removes the reason of the drain.
    resume_clears_reason: bool
    # PrologFlags=DeferBatch without Alloc makes the prologs of all nodes run.
    defer_batch_implies_alloc: bool
    # Failed prologs of one job after which Slurm holds it in spite of nohold_on_prolog_fail (MaxBatchRequeue); None:
    # no limit. Requeues by scontrol and node failures do not count.
    launch_failure_limit: int | None
    # A runtime error in job_submit.lua refuses the job.
    lua_error_refuses_job: bool
    # `sbatch --requeue=expedite` exists.
    expedited_requeue: bool

    @property
    def settling(self) -> str:
        """The wait before a requeued job may start, as docs/reference/releases.md writes it."""
        if self.settle_s:
            return f"{self.settle_s} s"
        return "until the next second" if self.settle_second else "none"


_SEEN: Final = {
    "22.05": (("SLURM_NODELIST",), True, True, False, None, False, False),
    "24.11": (("SLURM_JOB_NODELIST", "SLURM_NODELIST"), False, False, False, 5, False, False),
    "26.05": (("SLURM_JOB_NODELIST", "SLURM_NODELIST"), False, True, True, 5, True, True),
}
OBSERVED: Final = tuple(
    Observed(*(getattr(release, field.name) for field in fields(Release)), *_SEEN[release.name])  # type: ignore[arg-type]
    for release in releases.RELEASES
)


def of(version: str) -> Observed:
    """Return the observed release of a version such as `24.11.5`."""
    found = releases.of(version)
    assert found is not None, version
    return next(each for each in OBSERVED if each.series == found.series)
