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

# mpirun warns about a variable of `-x` that is not set; the dynamic loader reads an empty one as none.
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH-}"
# Left by `sbatch --export`: mpirun starts its daemons with srun, which has to hand the whole environment on.
unset SLURM_EXPORT_ENV

# Slurm starts a job in /tmp where its directory is missing on the node: end here instead.
cd /root

# The command names no mpirun: it was put before it, one rank a slot, 1 in all.
#   mpirun --allow-run-as-root -np 1 --bind-to none --map-by slot -x NCCL_DEBUG=INFO -x LD_LIBRARY_PATH -x PATH -mca pml ob1 -mca btl '^openib' ./a.out
slurm_plugin=/etc/slurm/slurm_plugin/bin/slurm-plugin
exec "$slurm_plugin" job supervise --mode=openmpi --retries=0 --slots=1 --infiniband=auto \
    -- ./a.out
