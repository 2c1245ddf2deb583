#!/bin/bash
#SBATCH --job-name=in
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --chdir=/home/ada/runs
#SBATCH --output=%x-%j.out
#SBATCH --open-mode=append
#SBATCH --no-requeue
#SBATCH --comment="[sp1;retries=0;ib=auto]"

# Job in, mode openmpi, nodes x processes: 2 x 1. Made from a job spec: change that, then run
#   slurm-plugin render container-pyxis.yaml
set -euo pipefail

# mpirun warns about a variable of `-x` that is not set. The dynamic loader ignores an empty one.
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH-}"
# `sbatch --export` sets this. mpirun starts its daemons with srun, which must pass on the whole environment.
unset SLURM_EXPORT_ENV

# If the directory is missing on the node, Slurm starts the job in /tmp: end here instead.
cd /home/ada/runs

# The command is left as it is: one task a rank, which Slurm's pmix serves.
#   srun --nodes=2 --ntasks=2 --ntasks-per-node=1 --kill-on-bad-exit=1 --export=ALL '--container-image=nvcr.io#nvidia/pytorch:24.01-py3' --container-mounts=/home/ada/runs:/home/ada/runs,/data:/data --container-workdir=/home/ada/runs --container-writable --container-mount-home --mpi=pmix ./a.out
slurm_plugin=/etc/slurm/slurm_plugin/bin/slurm-plugin
shopt -s execfail # go on after an exec that fails
exec "$slurm_plugin" job supervise '{
  "mode": "openmpi",
  "launch": "task",
  "slots": 1,
  "container": {"image": "nvcr.io#nvidia/pytorch:24.01-py3", "runtime": "pyxis", "mounts": ["/data"], "writable": true}
}' \
    -- ./a.out || {
    echo "[slurm_plugin] error,exiting: $(uname -n) cannot run $slurm_plugin: is its directory shared with the nodes?"
    exit 127
}
