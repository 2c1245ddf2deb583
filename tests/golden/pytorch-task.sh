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

# Slurm starts a job in /tmp where its directory is missing on the node: end here instead.
cd /home/ada/runs

# The command is left as it is: one task a rank.
#   srun --nodes=2 --ntasks=2 --ntasks-per-node=1 --kill-on-bad-exit=1 --export=ALL python train.py
slurm_plugin=/etc/slurm/slurm_plugin/bin/slurm-plugin
exec "$slurm_plugin" job supervise --mode=pytorch --launch=task --logs=/home/ada/runs/logs --logs-per=rank --label --retries=0 --slots=1 --infiniband=auto \
    -- python train.py
