#!/bin/bash
#SBATCH --job-name=ring
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --chdir=/home/ada/runs
#SBATCH --output=%x-%j.out
#SBATCH --open-mode=append
#SBATCH --no-requeue
#SBATCH --comment="[sp1;retries=0;ib=auto]"

# Job ring, mode intelmpi, nodes x processes: 2 x 1. Made from a job spec: change that, then run
#   slurm-plugin render intelmpi.yaml
set -euo pipefail

# mpirun warns about a variable of `-x` that is not set; the dynamic loader reads an empty one as none.
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH-}"
# Left by `sbatch --export`: mpirun starts its daemons with srun, which has to hand the whole environment on.
unset SLURM_EXPORT_ENV

# Slurm starts a job in /tmp where its directory is missing on the node: end here instead.
cd /home/ada/runs

# The command names no mpiexec: it was put before it, one rank a slot, 2 in all.
#   mpiexec.hydra -bootstrap slurm -machinefile '$SLURM_PLUGIN_HOSTFILE' -n 2 ./a.out 3
slurm_plugin=/etc/slurm/slurm_plugin/bin/slurm-plugin
exec "$slurm_plugin" job supervise --mode=intelmpi --retries=0 --slots=1 --infiniband=auto \
    -- ./a.out 3
