#!/bin/bash
#SBATCH --job-name=ranks
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --chdir=/home/ada/runs
#SBATCH --output=%x-%j.out
#SBATCH --open-mode=append
#SBATCH --no-requeue
#SBATCH --comment="[sp1;retries=0;ib=auto]"

# Job ranks, mode pytorch, nodes x processes: 2 x 1. Made from a job spec: change that, then run
#   slurm-plugin render pytorch-task.yaml
set -euo pipefail

# If the directory is missing on the node, Slurm starts the job in /tmp: end here instead.
cd /home/ada/runs

# The command is left as it is: one task a rank.
#   srun --nodes=2 --ntasks=2 --ntasks-per-node=1 --kill-on-bad-exit=1 --export=ALL bash -p -c '# its output also goes to log files ...' '/home/ada/runs/logs/ranks-$SLURM_JOB_ID' python train.py
slurm_plugin=/etc/slurm/slurm_plugin/bin/slurm-plugin
shopt -s execfail # go on after an exec that fails
exec "$slurm_plugin" job supervise '{
  "mode": "pytorch",
  "launch": "task",
  "slots": 1,
  "logs": "/home/ada/runs/logs",
  "logs_per": "rank",
  "label": true
}' \
    -- python train.py || {
    echo "[slurm_plugin] error,exiting: $(uname -n) cannot run $slurm_plugin: is its directory shared with the nodes?"
    exit 127
}
