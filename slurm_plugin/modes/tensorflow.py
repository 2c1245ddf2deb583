"""TensorFlow: TF_CONFIG in every task; one task a node (`launch: node`) or one a slot (`launch: task`).

Which task is what: hostfiles.tensorflow. Parameter servers serve for ever, and with TensorFlow 2's coordinator so do
the workers. With parameter servers each task therefore runs under a few lines of bash, which end the servers with exit
code 0 when the others have ended well: all workers, or the chief and, ten seconds later, whoever is left. They tell
each other in the job's directory. A task that fails ends all others, as in every mode.
"""

import json
from typing import Final

from hostfiles import Allocation
from hostfiles import tensorflow as variables_format
from slurm_plugin.errors import UsageError
from slurm_plugin.modes import step
from slurm_plugin.modes.base import LONGEST_VALUE, Launch, Mode, Place, Shape

# A program's own signals (a checkpoint's, Slurm's request to end) must not end the bash above it.
SERVERS_END: Final = f"""\
{step.FINISH}ended=$SLURM_PLUGIN_DIRECTORY/ended
mkdir -p "$ended"
kind=${{TF_CONFIG##*\\"type\\": \\"}} kind=${{kind%%\\"*}} patience=10
trap : HUP TERM USR1 USR2
setsid "$0" "$@" &
while kill -0 $! 2>/dev/null; do
  set -- "$ended"/worker.*
  [ ! -e "$ended/chief" ] || patience=$((patience - 1))
  case $kind in
  ps | worker)
    if [ $patience -le 0 ] || {{ [ -e "$1" ] && [ $# -ge "$SLURM_PLUGIN_WORKERS" ]; }}; then
      finish $!
      exit 0
    fi
    ;;
  esac
  sleep $((1 + SLURM_PLUGIN_WORKERS / 200))
done
wait $! || exit
case $kind in
chief) : >"$ended/chief" ;;
worker) : >"$ended/worker.$SLURM_PROCID" ;;
esac"""


class TensorFlow(Mode):
    """Mode `tensorflow`."""

    left_behind = ("ended",)

    def launch(self, words: tuple[str, ...], shape: Shape) -> Launch:
        """srun, and with parameter servers the lines that end them."""
        each = "one task a slot" if shape.launch == "task" else "one task a node"
        srun = step.srun(shape, ranks=shape.launch == "task")
        if not shape.options.ps:
            note = f"The command is left as it is: {each}, each with its TF_CONFIG."
            return Launch((*srun, *shape.inside(*words)), note)
        note = f"The command is left as it is: {each}, each with its TF_CONFIG; servers end when the others have."
        return Launch((*srun, *shape.inside("bash", "-c", SERVERS_END, *words)), note)

    def variables(self, place: Place) -> dict[str, str]:
        """How many workers there are."""
        return {"SLURM_PLUGIN_WORKERS": str(len(_cluster(place)["worker"]))}

    def task_script(self, place: Place) -> str | None:
        """The cluster once, and the task's type and index from its number."""
        lines, first = [], 0
        for kind, addresses in _cluster(place).items():
            lines.append(f"[ $SLURM_PROCID -lt {first} ] || kind={kind} first={first}\n")
            first += len(addresses)
        cluster, task = json.dumps(_cluster(place)), '{"type": "%s", "index": %d}'
        config = f'{{"cluster": {cluster}, "environment": "cloud", "task": {task}}}'
        if len(config) > LONGEST_VALUE:
            raise UsageError(
                f"TF_CONFIG has {len(config)} bytes, and a variable {LONGEST_VALUE} at most; give the job fewer tasks"
            )
        return "".join(lines) + f"printf 'export TF_CONFIG={config}\\n' $kind $((SLURM_PROCID - first))\n"

    def ports(self, place: Place) -> int:
        """One for each task of a node, of the one with the most: all nodes count from the same port."""
        return max(host.tasks for host in _allocation(place).hosts)


def _cluster(place: Place) -> dict[str, list[str]]:
    options = place.options
    return variables_format.cluster(
        _allocation(place), place.port, ps=options.ps, chief=options.chief, evaluator=options.evaluator
    )


def _allocation(place: Place) -> Allocation:
    """With the tasks that the step starts."""
    return place.allocation if place.launch == "task" else place.allocation.one_task_a_host
