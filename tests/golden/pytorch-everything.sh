#!/bin/bash
#SBATCH --job-name=every.thing-1
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=8
#SBATCH --gres=gpu:8
#SBATCH --time=2-00:00:00
#SBATCH --chdir="/home/ada/runs/my runs/no #1"
#SBATCH --output=logs/%x-%j.out
#SBATCH --error=logs/%x-%j.err
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --comment="[sp1;retries=3;ib=yes]"

# Job every.thing-1, mode pytorch, nodes x processes: 4 x 8. Made from a job spec: change that, then run
#   slurm-plugin render pytorch-everything.yaml
set -euo pipefail

export NCCL_DEBUG=WARN
export GREETING='it'"'"'s $HOME, `date`
and a second line
#SBATCH --comment=x'

# If the directory is missing on the node, Slurm starts the job in /tmp: end here instead.
cd '/home/ada/runs/my runs/no #1'

# The command names no launcher: torch.distributed.run starts it, once a node, 8 rank(s) each.
#   srun --nodes=4 --ntasks=4 --ntasks-per-node=1 --kill-on-bad-exit=1 --export=ALL bash -p -c 'exec "$0" -m torch.distributed.run --nnodes="$WORLD_SIZE" --nproc_per_node="$SLOTS" --node_rank="$RANK" --master_addr="$MASTER_ADDR" --master_port="$MASTER_PORT" "$@"' /opt/conda/envs/train/bin/python train.py --name 'two words' --note 'it'"'"'s'
slurm_plugin=/etc/slurm/slurm_plugin/bin/slurm-plugin
shopt -s execfail # go on after an exec that fails
exec "$slurm_plugin" job supervise '{
  "mode": "pytorch",
  "slots": 8,
  "retries": 3,
  "hold_s": 14400,
  "infiniband": "yes",
  "checkpoint": "/scratch/ada/checkpoints",
  "env_files": ["/home/ada/runs/my runs/no #1/keys.env", "/etc/it'"'"'s"],
  "own_env": ["NCCL_DEBUG", "GREETING"],
  "before": ["/home/ada/runs/my runs/no #1/setup.sh"],
  "after": ["/opt/tidy.py"],
  "found_hooks": false,
  "on_restart": ["/home/ada/runs/my runs/no #1/a.sh", "/home/ada/runs/my runs/no #1/b.py"],
  "on_hold": ["/opt/tell.sh"],
  "share_group": "team",
  "share_access": "read-write",
  "stage_in": ["set:/shared/data set", "images:/home/ada/runs/my runs/no #1/images"]
}' \
    -- /opt/conda/envs/train/bin/python train.py --name 'two words' --note 'it'"'"'s' || {
    echo "[slurm_plugin] error,exiting: $(uname -n) cannot run $slurm_plugin: is its directory shared with the nodes?"
    exit 127
}
