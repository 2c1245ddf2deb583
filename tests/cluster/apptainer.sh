#!/bin/bash
# A stand-in for apptainer, whose image is a directory: takes the options that we use as the real one takes them, and no
# others; hands the environment in as the real one does (env/create.go of 1.5.3); and enters another root in namespaces
# of the user's own. The image has its own /etc and whatever else stands in the directory; /usr is the node's.
set -euo pipefail
die() {
  echo "FATAL:   $*" >&2
  exit 255
}

enter() { # in a user and a mount namespace, as root there
  local root=/opt each source target option
  mount -t tmpfs -o mode=755 tmpfs $root
  cp -dR "$image/." $root/
  cp -dR /bin /sbin /lib* $root/ # links into /usr
  mkdir -p $root/usr $root/etc $root/proc $root/dev $root/tmp
  cat /etc/passwd >$root/etc/passwd
  for each in /usr /proc /dev /tmp ${home:+"$HOME"} "${binds[@]}"; do
    IFS=$'\x1f' read -r source target option <<<"$each"
    [ -e "$source" ] || die "while mounting $source: mount source $source doesn't exist"
    target=$root${target:-$source}
    if [ -d "$source" ]; then mkdir -p "$target"; else mkdir -p "${target%/*}" && touch "$target"; fi
    mount --rbind "$source" "$target"
    case ${option:=rw} in
    ro) mount -o remount,bind,ro "$target" ;;
    rw) ;;
    *) die "invalid bind option $option" ;;
    esac
  done
  [ "$writable" ] || mount -o remount,bind,ro $root
  local path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin inside=() name value expands=${APPTAINER_NO_EVAL-yes}
  [ ! -e "$image/.env" ] || mapfile -t inside <"$image/.env"
  for name in $(compgen -e); do
    case $name in
    APPTAINERENV_PATH) path=${!name} ;;
    APPTAINERENV_*)
      value=${!name}
      [ "$expands" = 1 ] || eval "value=\"${value//\"/\\\"}\"" # as a shell of the real one does
      inside+=("${name#APPTAINERENV_}=$value") && unset "$name"
      ;;
    APPTAINER* | LD_LIBRARY_PATH) unset "$name" ;;
    esac
  done
  exec unshare --user --map-user="$user" --map-group="$group" --root=$root --wd="$directory" \
    /usr/bin/env "${inside[@]}" "PATH=$path" "APPTAINER_CONTAINER=$image" "$@"
}

[ "${1-}" = exec ] || die "unknown command ${1-}"
shift
binds=() home=yes writable='' directory=$PWD user=$(id -u) group=$(id -g)
while [ $# -gt 0 ]; do
  case $1 in
  --nv | --rocm) ;;
  --no-home) home='' ;;
  --writable-tmpfs) writable=yes ;;
  --bind=*) binds+=("$(tr : '\037' <<<"${1#*=}")") ;;
  --mount=*)
    [[ $1 =~ ^--mount=type=bind,\"source=(.*)\",\"destination=(.*)\"(,ro)?$ ]] || die "invalid mount: $1"
    binds+=("${BASH_REMATCH[1]}"$'\x1f'"${BASH_REMATCH[2]}"$'\x1f'"${BASH_REMATCH[3]#,}")
    ;;
  --pwd=*) directory=${1#*=} ;;
  -*) die "unknown flag: $1" ;;
  *) break ;;
  esac
  shift
done
[ $# -ge 2 ] || die "exec needs an image and a command"
[ -d "$1" ] || die "could not open image $1: no such file or directory"
image=$(realpath "$1")
shift
exec unshare --user --map-root-user --mount \
  bash -euc "$(declare -p binds home writable directory user group image); $(declare -f die enter); enter \"\$@\"" apptainer "$@"
