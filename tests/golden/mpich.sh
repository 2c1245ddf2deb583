#!/bin/bash
#SBATCH --job-name=ring
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --time=01:00:00
#SBATCH --chdir=/home/ada/runs
#SBATCH --output=%x-%j.out
#SBATCH --open-mode=append
#SBATCH --no-requeue
#SBATCH --signal=B:USR1@120
#SBATCH --comment="[sp1;retries=0;ib=auto]"

# Job ring, mode mpich, nodes x processes: 2 x 1. Made from a job spec: change that, then run
#   slurm-plugin render mpich.yaml
set -euo pipefail
trap "" USR1 # the signal of `grace` may come before the program: it does not end this shell

# Load the modules, in addition to those of the environment. `module` and its definition do not work with `set -eu`.
set +eu +o pipefail
for slurm_plugin_file in "${MODULESHOME-}/init/bash" /etc/profile.d/*lmod.sh /etc/profile.d/*modules.sh \
    /usr/share/lmod/lmod/init/bash /usr/share/modules/init/bash; do
    type module >/dev/null 2>&1 && break # defined just now, or exported by the submitting shell
    [ ! -r "$slurm_plugin_file" ] || . "$slurm_plugin_file"
done
if ! type module >/dev/null 2>&1; then
    echo "[slurm_plugin] error,exiting: modules: $(uname -n) has no module command: install Lmod or Environment Modules"
    exit 1
fi
for slurm_plugin_module in gcc/12.2.0 mpich; do
    module load "$slurm_plugin_module" && continue
    echo "[slurm_plugin] error,exiting: modules: $slurm_plugin_module was not loaded on $(uname -n), as it says above; see: module avail"
    exit 1
done
set -euo pipefail # again

# mpirun warns about a variable of `-x` that is not set. The dynamic loader ignores an empty one.
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH-}"
# `sbatch --export` sets this. mpirun starts its daemons with srun, which must pass on the whole environment.
unset SLURM_EXPORT_ENV

# If the directory is missing on the node, Slurm starts the job in /tmp: end here instead.
cd /home/ada/runs

# The command names no mpiexec: it was put before it, one rank a slot, 2 in all.
#   mpiexec.hydra -launcher slurm -n 2 ./a.out 3
slurm_plugin=/etc/slurm/slurm_plugin/bin/slurm-plugin
shopt -s execfail # go on after an exec that fails
exec "$slurm_plugin" job supervise '{
  "mode": "mpich",
  "slots": 1,
  "grace_s": 120.0
}' \
    -- ./a.out 3 || {
    echo "[slurm_plugin] error,exiting: $(uname -n) cannot run $slurm_plugin: is its directory shared with the nodes?"
    exit 127
}
