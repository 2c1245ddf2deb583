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

# mpirun warns about a variable of `-x` that is not set; the dynamic loader reads an empty one as none.
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH-}"
# Left by `sbatch --export`: mpirun starts its daemons with srun, which has to hand the whole environment on.
unset SLURM_EXPORT_ENV

# Slurm starts a job in /tmp where its directory is missing on the node: end here instead.
cd /home/ada/runs

# The command is left as it is: one task a rank, which Slurm's pmix serves.
#   srun --nodes=2 --ntasks=2 --ntasks-per-node=1 --kill-on-bad-exit=1 --export=ALL '--container-image=nvcr.io#nvidia/pytorch:24.01-py3' --container-mounts=/home/ada/runs:/home/ada/runs,/data:/data --container-workdir=/home/ada/runs --container-writable --container-mount-home --mpi=pmix ./a.out
slurm_plugin=/etc/slurm/slurm_plugin/bin/slurm-plugin
exec "$slurm_plugin" job supervise --mode=openmpi --launch=task '--container-image=nvcr.io#nvidia/pytorch:24.01-py3' --container-runtime=pyxis --container-mounts=/data --container-writable --retries=0 --slots=1 --infiniband=auto \
    -- ./a.out
