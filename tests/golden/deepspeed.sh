#!/bin/bash
#SBATCH --job-name=ds
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --chdir=/home/ada/runs
#SBATCH --output=%x-%j.out
#SBATCH --open-mode=append
#SBATCH --no-requeue
#SBATCH --comment="[sp1;retries=0;ib=auto]"

# Job ds, mode deepspeed, nodes x processes: 2 x 1. Made from a job spec: change that, then run
#   slurm-plugin render deepspeed.yaml
set -euo pipefail

# If the directory is missing on the node, Slurm starts the job in /tmp: end here instead.
cd /home/ada/runs

# `deepspeed` is started once a node, without ssh: it is given the node's number, and where rank 0 listens.
#   srun --nodes=2 --ntasks=2 --ntasks-per-node=1 --kill-on-bad-exit=1 --export=ALL bash -p -c 'exec "$0" --no_ssh --node_rank="$RANK" --master_addr="$MASTER_ADDR" --master_port="$MASTER_PORT" --hostfile="$SLURM_PLUGIN_HOSTFILE" "$@"' deepspeed train.py --deepspeed
slurm_plugin=/etc/slurm/slurm_plugin/bin/slurm-plugin
shopt -s execfail # go on after an exec that fails
exec "$slurm_plugin" job supervise '{
  "mode": "deepspeed",
  "slots": 1
}' \
    -- deepspeed train.py --deepspeed || {
    echo "[slurm_plugin] error,exiting: $(uname -n) cannot run $slurm_plugin: is its directory shared with the nodes?"
    exit 127
}
