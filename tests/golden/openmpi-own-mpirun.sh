#!/bin/bash
#SBATCH --job-name=own
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --chdir=/home/ada/runs
#SBATCH --output=%x-%j.out
#SBATCH --open-mode=append
#SBATCH --no-requeue
#SBATCH --comment="[sp1;retries=0;ib=auto]"

# Job own, mode openmpi, nodes x processes: 2 x 1. Made from a job spec: change that, then run
#   slurm-plugin render openmpi-own-mpirun.yaml
set -euo pipefail

# mpirun warns about a variable of `-x` that is not set; the dynamic loader reads an empty one as none.
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH-}"
# Left by `sbatch --export`: mpirun starts its daemons with srun, which has to hand the whole environment on.
unset SLURM_EXPORT_ENV

# Slurm starts a job in /tmp where its directory is missing on the node: end here instead.
cd /home/ada/runs

# The command names its launcher: left as it is, started once, on the first node.
slurm_plugin=/etc/slurm/slurm_plugin/bin/slurm-plugin
exec "$slurm_plugin" job supervise --mode=openmpi --retries=0 --slots=1 --infiniband=auto \
    -- mpirun -np 4 ./a.out
