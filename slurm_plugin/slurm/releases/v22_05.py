"""Slurm 22.05 (seen on 22.05.8, Debian bookworm): the oldest that we run on.

- Prolog knows the job's nodes as SLURM_NODELIST only.
- squeue prints exit_code as a wait status: 1792 for exit 7.
- `squeue -O` does not know ExcNodes; `squeue -o %x` does.
- RESUME of a drained idle node removes the reason. The node then counts as not responding until it answers once more.
- A requeued job that starts in the second of its end on a node of its last run fails there ("Job credential revoked").
  Within two seconds its prolog may be left out there, and the node is drained after 20 s: slurmd forgets revoked
  credentials at most every other second (_clear_expired_job_states in src/common/slurm_cred.c; gone with 23.02).
- PrologFlags=DeferBatch does not imply Alloc: alone, only the first node's prolog runs.
- With nohold_on_prolog_fail a job whose prologs fail is requeued without any limit; MaxBatchRequeue does not exist.
- A runtime error in job_submit.lua lets the job through.
- An EpilogSlurmctld that comes with a reconfigure is shown and never runs: slurmctld must be restarted. One that was
  set at the start may be changed and removed by a reconfigure.
- Of several lines Prolog, Epilog or EpilogSlurmctld the last one counts.
- sbatch refuses `--requeue=expedite`.
- `scontrol show config` names the hooks `Prolog`, `EpilogSlurmctld`.
"""

from typing import Final

from slurm_plugin.slurm.releases.release import Release

RELEASE: Final = Release(
    series=(22, 5),
    name="22.05",
    prolog_node_lists=("SLURM_NODELIST",),
    squeue_prints_wait_status=True,
    resume_clears_reason=True,
    defer_batch_implies_alloc=False,
    launch_failure_limit=None,
    lua_error_refuses_job=False,
    reconfigure_starts_epilog_slurmctld=False,
    hooks_repeat=False,
    settle_s=2.0,
    settle_second=True,
    expedited_requeue=False,
)
