#!/bin/bash
#SBATCH --job-name=actors
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=32
#SBATCH --partition=cpu
#SBATCH --time=01:00:00
#SBATCH --chdir=/home/ada/runs
#SBATCH --output=%x-%j.out
#SBATCH --open-mode=append
#SBATCH --no-requeue
#SBATCH --comment="[sp1;retries=0;ib=auto]"
#SBATCH hetjob
#SBATCH --job-name=actors
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=8
#SBATCH --gres=gpu:8
#SBATCH --time=01:00:00
#SBATCH --chdir=/home/ada/runs
#SBATCH --output=%x-%j.out
#SBATCH --open-mode=append
#SBATCH --no-requeue
#SBATCH --comment="[sp1;retries=0;ib=auto]"

# Job actors, mode pytorch, nodes x processes: 1 x 1 + 4 x 8. Made from a job spec: change that, then run
#   slurm-plugin render pytorch-groups.yaml
set -euo pipefail
unset "${!SLURM_CPUS_PER_TASK@}" "${!SLURM_TRES_PER_TASK@}"

# If the directory is missing on the node, Slurm starts the job in /tmp: end here instead.
cd /home/ada/runs

# The command is left as it is: one task a rank.
#   srun --het-group=0 --nodes=1 --ntasks=1 --ntasks-per-node=1 --cpus-per-task=32 --kill-on-bad-exit=1 --export=ALL : --het-group=1 --nodes=4 --ntasks=32 --ntasks-per-node=8 --kill-on-bad-exit=1 --export=ALL python train.py
slurm_plugin=/etc/slurm/slurm_plugin/bin/slurm-plugin
shopt -s execfail # go on after an exec that fails
exec "$slurm_plugin" job supervise '{
  "mode": "pytorch",
  "launch": "task",
  "slots": 1,
  "groups": [[1, 32], [8, null]]
}' \
    -- python train.py || {
    echo "[slurm_plugin] error,exiting: $(uname -n) cannot run $slurm_plugin: is its directory shared with the nodes?"
    exit 127
}
