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

# mpirun warns about a variable of `-x` that is not set. The dynamic loader ignores an empty one.
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH-}"
# `sbatch --export` sets this. mpirun starts its daemons with srun, which must pass on the whole environment.
unset SLURM_EXPORT_ENV

# If the directory is missing on the node, Slurm starts the job in /tmp: end here instead.
cd /home/ada/runs

# The command names no mpiexec: it was put before it, one rank a slot, 2 in all.
#   mpiexec.hydra -bootstrap slurm -machinefile '$SLURM_PLUGIN_HOSTFILE' -n 2 ./a.out 3
slurm_plugin=/etc/slurm/slurm_plugin/bin/slurm-plugin
shopt -s execfail # go on after an exec that fails
exec "$slurm_plugin" job supervise '{
  "mode": "intelmpi",
  "slots": 1
}' \
    -- ./a.out 3 || {
    echo "[slurm_plugin] error,exiting: $(uname -n) cannot run $slurm_plugin: is its directory shared with the nodes?"
    exit 127
}
