#!/bin/bash
#SBATCH --job-name=np
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gres=npu:8
#SBATCH --chdir=/home/ada/runs
#SBATCH --output=%x-%j.out
#SBATCH --open-mode=append
#SBATCH --no-requeue
#SBATCH --comment="[sp1;retries=0;ib=auto]"

# Job np, mode ascend, nodes x processes: 2 x 8. Made from a job spec: change that, then run
#   slurm-plugin render ascend.yaml
set -euo pipefail

# If the directory is missing on the node, Slurm starts the job in /tmp: end here instead.
cd /home/ada/runs

# The command is left as it is: one task a device, with a rank table.
#   srun --nodes=2 --ntasks=16 --ntasks-per-node=8 --kill-on-bad-exit=1 --export=ALL --distribution=block bash -p -c '# its output also goes to log files ...' '/home/ada/runs/logs/np-$SLURM_JOB_ID' python train.py
slurm_plugin=/etc/slurm/slurm_plugin/bin/slurm-plugin
shopt -s execfail # go on after an exec that fails
exec "$slurm_plugin" job supervise '{
  "mode": "ascend",
  "slots": 8,
  "logs": "/home/ada/runs/logs",
  "logs_per": "both"
}' \
    -- python train.py || {
    echo "[slurm_plugin] error,exiting: $(uname -n) cannot run $slurm_plugin: is its directory shared with the nodes?"
    exit 127
}
