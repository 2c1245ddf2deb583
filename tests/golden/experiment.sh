#!/bin/bash
#SBATCH --job-name=lr
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --array=0-11%4
#SBATCH --chdir=/home/ada/runs
#SBATCH --output=%x-%A_%a.out
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --comment="[sp1;retries=0;ib=auto]"

# Job lr, mode pytorch, nodes x processes: 1 x 1. Made from an experiment: change that, then run
#   slurm-plugin experiment submit --dry-run experiment.yaml
set -euo pipefail

# If the directory is missing on the node, Slurm starts the job in /tmp: end here instead.
cd /home/ada/runs

# The command names no launcher: torch.distributed.run starts it, once a node, 1 rank(s) each.
#   srun --nodes=1 --ntasks=1 --ntasks-per-node=1 --kill-on-bad-exit=1 --export=ALL bash -p -c 'exec "$0" -m torch.distributed.run --nnodes="$WORLD_SIZE" --nproc_per_node="$SLOTS" --node_rank="$RANK" --master_addr="$MASTER_ADDR" --master_port="$MASTER_PORT" "$@"' python train.py --lr '{lr}'
slurm_plugin=/etc/slurm/slurm_plugin/bin/slurm-plugin
shopt -s execfail # go on after an exec that fails
# Each task of the array takes trials of the experiment, one after the other, and runs the rest of the line for each.
exec "$slurm_plugin" experiment work '/home/ada/runs/it'"'"'s lr' -- \
    job supervise '{
  "mode": "pytorch",
  "slots": 1
}' \
    -- python train.py --lr '{lr}' || {
    echo "[slurm_plugin] error,exiting: $(uname -n) cannot run $slurm_plugin: is its directory shared with the nodes?"
    exit 127
}
