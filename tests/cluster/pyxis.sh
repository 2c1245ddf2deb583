#!/bin/bash
# A stand-in for an srun of a Slurm with pyxis: takes the options that we use, and has the step's tasks in the root that
# apptainer.sh beside it enters. Unlike with pyxis TaskProlog runs outside; nothing of ours depends on it there.
set -euo pipefail
srun=/usr/bin/srun
if [ "${1-}" = --help ]; then
  $srun --help
  echo "      --container-image=[USER@][REGISTRY#]IMAGE[:TAG]|PATH"
  exit
fi
given=("$@") options=() enter=() image=''
while [[ ${1-} == -?* && $1 != -- ]]; do
  case $1 in
  --container-image=*) image=${1#*=} ;;
  --container-mounts=*)
    IFS=, read -ra mounts <<<"${1#*=}"
    enter+=("${mounts[@]/#/--bind=}")
    ;;
  --container-workdir=*) enter+=("--pwd=${1#*=}") ;;
  --container-writable) enter+=(--writable-tmpfs) ;;
  --no-container-mount-home) enter+=(--no-home) ;;
  --container-readonly | --container-mount-home) ;;
  --container-env=*)
    for name in $(tr , ' ' <<<"${1#*=}"); do
      [ ! -v "$name" ] || export "APPTAINERENV_$name=${!name}"
    done
    ;;
  *) options+=("$1") ;;
  esac
  shift
done
[ "$image" ] || exec $srun "${given[@]}"
[ "${1-}" != -- ] || shift
exec $srun "${options[@]}" "${0%/*}/apptainer" exec "${enter[@]}" "$image" "$@"
