"""PyTorch: one launcher a node (`launch: node`), which starts the ranks, or one task a rank (`launch: task`).

The variables are row C3's: for a launcher, WORLD_SIZE and RANK count **nodes**; for a rank they count ranks. What is
the same everywhere travels in the environment of srun; what differs, TaskProlog sets from Slurm's own numbers.
"""

import itertools
from collections.abc import Mapping
from typing import ClassVar, Final

from hostfiles import pytorch as hostfile_format
from slurm_plugin.errors import UsageError
from slurm_plugin.modes import command, step
from slurm_plugin.modes.base import Launch, Mode, Place, Shape

_LAUNCHER_MODULES: Final = ("torch.distributed.", "accelerate.commands.", "deepspeed.")

# The user's own interpreter runs the launcher, so an environment named by its path works without being activated.
# Underscores: the spelling that every torch.distributed.run knows; dashes came with 2.0.
LAUNCHER: Final = (
    'exec "$0" -m torch.distributed.run --nnodes="$WORLD_SIZE" --nproc_per_node="$SLOTS" --node_rank="$RANK"'
    ' --master_addr="$MASTER_ADDR" --master_port="$MASTER_PORT" "$@"'
)

_NODE: Final = {"RANK": "$SLURM_NODEID"}
_TASK: Final = {
    "RANK": "$SLURM_PROCID",
    "ROLE_RANK": "$SLURM_PROCID",
    "LOCAL_RANK": "$SLURM_LOCALID",
    "GROUP_RANK": "$SLURM_NODEID",
}


class PyTorch(Mode):
    """Mode `pytorch`."""

    started_by: ClassVar[str] = "torch.distributed.run"  # what a Python program is started by on each node
    launchers: ClassVar[tuple[str, ...]] = ("torchrun", "accelerate")  # others that a command may start

    def launch(self, words: tuple[str, ...], shape: Shape) -> Launch:
        """Start the command on every node with srun; `python train.py` through torch.distributed.run (row C3)."""
        if command.name(words[0]) in command.MPI_LAUNCHERS:
            return Launch(words, "The command starts its own tasks: left as it is, started once, on the first node.")
        if shape.launch == "task":
            srun = step.srun(shape, ranks=True)
            return Launch((*srun, *shape.inside(*words)), "The command is left as it is: one task a rank.")
        rest = program(words)
        if rest is None:
            note = "The command names its launcher, or is no Python program: left as it is, started once a node."
            return Launch((*step.srun(shape), *shape.inside(*words)), note)
        ranks = f"{shape.shown_slots} rank(s) each"
        note = f"The command names no launcher: torch.distributed.run starts it, once a node, {ranks}."
        return Launch((*step.srun(shape), *shape.inside("bash", "-c", LAUNCHER, words[0], *rest)), note)

    def ended_by_usr1(self, words: tuple[str, ...], shape: Shape) -> str:
        """Each of them, on every node. A shell may have a trap, and srun hands signals on."""
        if shape.launch == "task" or command.name(words[0]) in command.MPI_LAUNCHERS:
            return ""
        found = command.started(words)
        if found in self.launchers or found.startswith(_LAUNCHER_MODULES):
            return found
        return self.started_by if command.is_python(words[0]) and len(words) > 1 else ""

    def variables(self, place: Place) -> dict[str, str]:
        """The rendezvous: MASTER_ADDR, MASTER_PORT, and how many there are."""
        first, differs = _first(place)
        return {name: value for name, value in first.items() if name not in differs}

    def task_script(self, place: Place) -> str | None:
        """RANK, and for ranks their place on the node, from Slurm's numbers of the task."""
        return _counting(place) + step.exports(_first(place)[1])


def program(words: tuple[str, ...]) -> tuple[str, ...] | None:
    """What torch.distributed.run is given for a Python program that names no launcher; None for anything else."""
    if not command.is_python(words[0]):
        return None
    rest = words[1:]
    while rest[:1] == ("-u",):  # the launcher adds it
        rest = rest[1:]
    if not rest or any(
        module.startswith(_LAUNCHER_MODULES) for option, module in itertools.pairwise(rest) if option == "-m"
    ):
        return None
    if not rest[0].startswith("-") or (rest[0] == "-m" and len(rest) > 1):
        return rest
    return ("--no_python", *words)  # options of the interpreter: it is run exactly as written


def _first(place: Place) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """The variables of the first task, and those of them that differ with the sh words that have their value."""
    allocation, unlike = place.allocation, bool(_counting(place))
    if place.launch == "task":
        if unlike and not place.grouped:
            raise UsageError(f"{allocation.nodelist}: unlike numbers of tasks; submit with --ntasks-per-node")
        differs = {**_TASK, **({"LOCAL_WORLD_SIZE": "$count"} if unlike else {})}
        return hostfile_format.rank_variables(allocation, 0, place.port), differs
    differs = {**_NODE, **({"SLOTS": "$count"} if unlike else {})}
    return hostfile_format.node_variables(allocation, 0, place.port), differs


def _counting(place: Place) -> str:
    """Lines of sh that set `count` to the processes of the task's own node; none where all nodes have as many."""
    counts = [host.tasks if place.launch == "task" else host.slots for host in place.allocation.hosts]
    firsts = [at for at, count in enumerate(counts) if not at or count != counts[at - 1]]
    if len(firsts) == 1:
        return ""
    return "".join(f"[ $SLURM_NODEID -lt {first} ] || count={counts[first]}\n" for first in firsts)
