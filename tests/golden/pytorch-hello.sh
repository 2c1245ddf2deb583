#!/bin/bash
#SBATCH --job-name=pytorch-hello
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --gres=gpu:2
#SBATCH --time=00:05:00
#SBATCH --chdir=/home/ada/runs
#SBATCH --output=%x-%j.out
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --comment="[sp1;retries=1;ib=auto]"

# Job pytorch-hello, mode pytorch, nodes x processes: 2 x 2. Made from a job spec: change that, then run
#   slurm-plugin render pytorch-hello.yaml
set -euo pipefail

# If the directory is missing on the node, Slurm starts the job in /tmp: end here instead.
cd /home/ada/runs

# The command names no launcher: torch.distributed.run starts it, once a node, 2 rank(s) each.
#   srun --nodes=2 --ntasks=2 --ntasks-per-node=1 --kill-on-bad-exit=1 --export=ALL bash -p -c 'exec "$0" -m torch.distributed.run --nnodes="$WORLD_SIZE" --nproc_per_node="$SLOTS" --node_rank="$RANK" --master_addr="$MASTER_ADDR" --master_port="$MASTER_PORT" "$@"' python hello.py
slurm_plugin=/etc/slurm/slurm_plugin/bin/slurm-plugin
shopt -s execfail # go on after an exec that fails
exec "$slurm_plugin" job supervise '{
  "mode": "pytorch",
  "slots": 2,
  "retries": 1,
  "checkpoint": "/home/ada/runs/checkpoints"
}' \
    -- python hello.py || {
    echo "[slurm_plugin] error,exiting: $(uname -n) cannot run $slurm_plugin: is its directory shared with the nodes?"
    exit 127
}
