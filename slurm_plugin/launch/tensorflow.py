"""TensorFlow: TF_CONFIG in every task, with one task per node (`launch: node`) or per slot (`launch: task`).

hostfiles.tensorflow defines the roles of the tasks. Parameter servers are not tasks: the first task of a node starts
the program and the node's servers. Each server gets a TF_CONFIG, and no GPUs. In a job of groups the servers are the
last tasks, for a group of small nodes. Servers never end by themselves, nor do the workers of TensorFlow 2's
coordinator. So with parameter servers each task runs under a bash script. The script ends servers and workers with exit
code 0 when all workers have ended well, or ten seconds after the chief has ended well. The scripts communicate by files
in the job's directory. A task or a server that fails ends all others, as in every mode.
"""

import json
from typing import Final, TypedDict

from hostfiles import Allocation
from hostfiles import tensorflow as variables_format
from slurm_plugin.errors import UsageError
from slurm_plugin.launch.mode import FINISH, LONGEST_VALUE, Launch, Mode, Place, Shape, by_srun

# Signals for the program (to save a checkpoint, to end) must not end the bash that runs it.
SERVERS_END: Final = f"""\
{FINISH}fail() {{
  for each in $program $servers; do kill -KILL -- "$each" "-$each"; done 2>/dev/null
  exit "$1"
}}
over() {{
  [ ! -e "$ended/chief" ] || patience=$((patience - 1))
  set -- "$ended"/worker.*
  [ $patience -le 0 ] || {{ [ -e "$1" ] && [ $# -ge "$SLURM_PLUGIN_WORKERS" ]; }}
}}
ended=$SLURM_PLUGIN_DIRECTORY/ended
mkdir -p "$ended"
kind=${{TF_CONFIG##*\\"type\\": \\"}} kind=${{kind%%\\"*}} patience=10 servers=
trap : HUP TERM USR1 USR2
number=$SLURM_NODEID
[ "$SLURM_LOCALID" = 0 ] || number=${{SLURM_PLUGIN_SERVERS-0}}
while [ "$number" -lt "${{SLURM_PLUGIN_SERVERS-0}}" ]; do
  TF_CONFIG="${{TF_CONFIG%\\"task\\": *}}\\"task\\": {{\\"type\\": \\"ps\\", \\"index\\": $number}}}}" \\
    CUDA_VISIBLE_DEVICES=-1 HIP_VISIBLE_DEVICES=-1 setsid "$0" "$@" &
  servers="$servers $!" number=$((number + SLURM_STEP_NUM_NODES))
done
setsid "$0" "$@" &
program=$!
while :; do
  serving=
  for each in $servers; do
    if kill -0 $each 2>/dev/null; then serving="$serving $each"; else wait $each || fail $?; fi
  done
  servers=$serving
  if [ -n "$program" ] && ! kill -0 $program 2>/dev/null; then
    wait $program || fail $?
    program=
    case $kind in
    chief) : >"$ended/chief" ;;
    worker) : >"$ended/worker.$SLURM_PROCID" ;;
    esac
  fi
  if over; then
    case $kind in ps | worker) servers="$servers $program" program= ;; esac
    for each in $servers; do finish $each; done
    servers=
  fi
  [ -n "$program$servers" ] || exit 0
  sleep $((1 + SLURM_PLUGIN_WORKERS / 200))
done"""


class Roles(TypedDict):
    """The tasks that are not workers."""

    ps: int
    chief: bool
    evaluator: bool


class TensorFlow(Mode):
    """Mode `tensorflow`."""

    left_behind = ("ended",)

    def launch(self, words: tuple[str, ...], shape: Shape) -> Launch:
        """Return the launch of the tasks by srun. With parameter servers, each task runs under SERVERS_END."""
        ranks = shape.launch == "task"
        each = "one task a slot" if ranks else "one task a node"
        if not shape.options.ps:
            note = f"The command is left as it is: {each}, each with its TF_CONFIG."
            return by_srun(shape, words, note, ranks=ranks)
        note = f"The command is left as it is: {each}, each with its TF_CONFIG; servers end when the others have."
        return by_srun(shape, ("bash", "-p", "-c", SERVERS_END, *words), note, ranks=ranks)

    def variables(self, place: Place) -> dict[str, str]:
        """Return the number of workers, and the number of parameter servers without a task."""
        servers = {"SLURM_PLUGIN_SERVERS": str(beside)} if (beside := _beside(place)) else {}
        return {"SLURM_PLUGIN_WORKERS": str(len(_cluster(place)["worker"])), **servers}

    def task_script(self, place: Place) -> str | None:
        """Return lines that print TF_CONFIG: the cluster, and the type and index that follow from the task's number."""
        lines, first = [], 0
        for kind, count in variables_format.members(_allocation(place).tasks, **_roles(place)).items():
            if count:
                lines.append(f"[ $SLURM_PROCID -lt {first} ] || kind={kind} first={first}\n")
            first += count
        cluster, task = json.dumps(_cluster(place)), '{"type": "%s", "index": %d}'
        config = f'{{"cluster": {cluster}, "environment": "cloud", "task": {task}}}'
        if len(config) > LONGEST_VALUE:
            raise UsageError(
                f"TF_CONFIG has {len(config)} bytes, and a variable {LONGEST_VALUE} at most; give the job fewer tasks"
            )
        return "".join(lines) + f"printf 'export TF_CONFIG={config}\\n' $kind $((SLURM_PROCID - first))\n"

    def ports(self, place: Place) -> int:
        """Return the largest number of members on a node: the ports of each node begin at the same number."""
        return variables_format.ports(_allocation(place), _beside(place))


def _cluster(place: Place) -> dict[str, list[str]]:
    return variables_format.cluster(_allocation(place), place.port, **_roles(place), beside=_beside(place))


def _roles(place: Place) -> Roles:
    """Return the tasks that are not workers."""
    options = place.options
    return {"ps": options.ps - _beside(place), "chief": options.chief, "evaluator": options.evaluator}


def _beside(place: Place) -> int:
    """Return the number of parameter servers without a task: all, but none in a job of groups."""
    return 0 if place.grouped else place.options.ps


def _allocation(place: Place) -> Allocation:
    """Return the allocation with the tasks of the step. The job may have more, to get CPUs for servers."""
    in_task = place.launch == "task"
    hosts = tuple(host._replace(tasks=host.slots if in_task else 1) for host in place.allocation.hosts)
    return place.allocation._replace(hosts=hosts)
