#!/bin/bash
#SBATCH --job-name=ms
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=8
#SBATCH --gres=npu:8
#SBATCH --chdir=/home/ada/runs
#SBATCH --output=%x-%j.out
#SBATCH --open-mode=append
#SBATCH --no-requeue
#SBATCH --comment="[sp1;retries=0;ib=auto]"

# Job ms, mode ascend, nodes x processes: 1 x 8. Made from a job spec: change that, then run
#   slurm-plugin render ascend-cluster.yaml
set -euo pipefail

# If the directory is missing on the node, Slurm starts the job in /tmp: end here instead.
cd /home/ada/runs

# The command is left as it is: one task a device, and once more as the scheduler, beside rank 0.
#   srun --nodes=1 --ntasks=8 --ntasks-per-node=8 --kill-on-bad-exit=1 --export=ALL --distribution=block bash -p -c '# its output also goes to log files ...' '/home/ada/runs/logs/ms-$SLURM_JOB_ID' bash -p -c '[ "$SLURM_PROCID" = 0 ] || exec "$0" "$@" ...' python x
slurm_plugin=/etc/slurm/slurm_plugin/bin/slurm-plugin
shopt -s execfail # go on after an exec that fails
exec "$slurm_plugin" job supervise '{
  "mode": "ascend",
  "slots": 8,
  "logs": "/home/ada/runs/logs",
  "logs_per": "both",
  "table": false,
  "messages": "diagnosis"
}' \
    -- python x || {
    echo "[slurm_plugin] error,exiting: $(uname -n) cannot run $slurm_plugin: is its directory shared with the nodes?"
    exit 127
}
