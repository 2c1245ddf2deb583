#!/bin/bash
#SBATCH --job-name=tf
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=2
#SBATCH --chdir=/home/ada/runs
#SBATCH --output=%x-%j.out
#SBATCH --open-mode=append
#SBATCH --no-requeue
#SBATCH --comment="[sp1;retries=0;ib=auto]"

# Job tf, mode tensorflow, nodes x processes: 4 x 1. Made from a job spec: change that, then run
#   slurm-plugin render tensorflow.yaml
set -euo pipefail

# If the directory is missing on the node, Slurm starts the job in /tmp: end here instead.
cd /home/ada/runs

# The command is left as it is: one task a node, each with its TF_CONFIG; servers end when the others have.
#   srun --nodes=4 --ntasks=4 --ntasks-per-node=1 --kill-on-bad-exit=1 --export=ALL bash -p -c 'finish() { ...' python t.py
slurm_plugin=/etc/slurm/slurm_plugin/bin/slurm-plugin
shopt -s execfail # go on after an exec that fails
exec "$slurm_plugin" job supervise '{
  "mode": "tensorflow",
  "slots": 1,
  "ps": 1,
  "chief": true,
  "evaluator": true
}' \
    -- python t.py || {
    echo "[slurm_plugin] error,exiting: $(uname -n) cannot run $slurm_plugin: is its directory shared with the nodes?"
    exit 127
}
