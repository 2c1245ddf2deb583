"""Slurm 26.05 (seen on 26.05.5, Debian forky). As 24.11, but for these:

- RESUME of a drained idle node removes the reason.
- A batch script has SLURM_STEP_ID=-5; before, only steps have that variable.
- A requeued job may start at once on a node of its last run: none failed in 21 tries. slurmd knows a revoked credential
  by its SLUID, and each run has one of its own (src/slurmd/slurmd/cred_context.c, _list_find_job_state).
- PrologFlags=DeferBatch implies Alloc.
- A runtime error in job_submit.lua refuses the job.
- `sbatch --requeue=expedite` exists (from 25.11), and is refused without SlurmctldParameters=enable_expedited_requeue.
  `scontrol show job` says ExpeditedRequeue=Yes. Such a job runs again at once, without the 121 s, in whichever way it
  was requeued. When its node died, or its script failed and then an epilog, its state is EXPEDITING until it runs: its
  owner may change nothing then, SlurmUser everything. When its script failed and every epilog was fine, it stays in
  REQUEUE_HOLD, "job requeued in held state", until somebody releases it. Our hooks count its restarts like any other's.
"""

from typing import Final

from slurm_plugin.slurm.releases.release import Release

RELEASE: Final = Release(
    series=(26, 5),
    name="26.05",
    prolog_node_lists=("SLURM_JOB_NODELIST", "SLURM_NODELIST"),
    squeue_prints_wait_status=False,
    resume_clears_reason=True,
    defer_batch_implies_alloc=True,
    launch_failure_limit=5,
    lua_error_refuses_job=True,
    reconfigure_starts_epilog_slurmctld=True,
    hooks_repeat=True,
    settle_s=0.0,
    settle_second=False,
    expedited_requeue=True,
)
