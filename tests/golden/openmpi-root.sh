#!/bin/bash
#SBATCH --job-name=small
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --chdir=/root
#SBATCH --output=%x-%j.out
#SBATCH --open-mode=append
#SBATCH --no-requeue
#SBATCH --comment="[sp1;retries=0;ib=auto]"

# Job small, mode openmpi, nodes x processes: 1 x 1. Made from a job spec: change that, then run
#   slurm-plugin render openmpi-root.yaml
set -euo pipefail

# mpirun warns about a variable of `-x` that is not set. The dynamic loader ignores an empty one.
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH-}"
# `sbatch --export` sets this. mpirun starts its daemons with srun, which must pass on the whole environment.
unset SLURM_EXPORT_ENV

# If the directory is missing on the node, Slurm starts the job in /tmp: end here instead.
cd /root

# The command names no mpirun: it was put before it, one rank a slot, 1 in all.
#   mpirun --allow-run-as-root -np 1 --bind-to none --map-by slot -x NCCL_DEBUG=INFO -x LD_LIBRARY_PATH -x PATH -mca pml ob1 -mca btl '^openib' ./a.out
slurm_plugin=/etc/slurm/slurm_plugin/bin/slurm-plugin
shopt -s execfail # go on after an exec that fails
exec "$slurm_plugin" job supervise '{
  "mode": "openmpi",
  "slots": 1
}' \
    -- ./a.out || {
    echo "[slurm_plugin] error,exiting: $(uname -n) cannot run $slurm_plugin: is its directory shared with the nodes?"
    exit 127
}
