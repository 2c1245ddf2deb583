"""Slurm 24.11 (seen on 24.11.5, Debian trixie).

- Prolog has SLURM_JOB_NODELIST beside SLURM_NODELIST.
- squeue prints exit_code as code:signal, 7:0.
- RESUME of a drained idle node keeps the reason, and an empty one does not clear it: an idle node may show a stale one.
- A requeued job that starts in the second of its end on a node of its last run fails there, and the node is drained:
  credentials are revoked as of a whole second (cred_handle_reissue in src/slurmd/slurmd/cred_context.c).
- PrologFlags=DeferBatch does not imply Alloc.
- The fifth failed prolog of a job holds it (MaxBatchRequeue): state REQUEUE_HOLD, priority 0. Its owner may not release
  it, SlurmUser may; the count then begins again.
- A runtime error in job_submit.lua lets the job through.
- `scontrol reconfigure` starts slurmctld anew: an EpilogSlurmctld that comes with it runs.
- Prolog, Epilog and EpilogSlurmctld may stand several times: slurmd runs them in order up to the first that fails.
- sbatch refuses `--requeue=expedite`.
- `scontrol show config` names the hooks `Prolog[0]`, `EpilogSlurmctld[0]`.
"""

from typing import Final

from slurm_plugin.slurm.releases.release import Release

RELEASE: Final = Release(
    series=(24, 11),
    name="24.11",
    prolog_node_lists=("SLURM_JOB_NODELIST", "SLURM_NODELIST"),
    squeue_prints_wait_status=False,
    resume_clears_reason=False,
    defer_batch_implies_alloc=False,
    launch_failure_limit=5,
    lua_error_refuses_job=False,
    reconfigure_starts_epilog_slurmctld=True,
    hooks_repeat=True,
    settle_s=0.0,
    settle_second=True,
    expedited_requeue=False,
)
