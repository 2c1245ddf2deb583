"""PyTorch: one launcher per node (`launch: node`), which starts the ranks, or one task per rank (`launch: task`).

For a launcher, WORLD_SIZE and RANK count **nodes**; for a rank they count ranks. srun passes on the variables that are
the same everywhere. TaskProlog sets the others from Slurm's variables of the task.
"""

import itertools
from collections.abc import Mapping
from typing import ClassVar, Final

from hostfiles import pytorch as hostfile_format
from slurm_plugin.errors import UsageError
from slurm_plugin.launch import command, log_copy
from slurm_plugin.launch.mode import Launch, Mode, Place, Shape, by_srun, exports
from slurm_plugin.records.log_files import DUMP, DUMP_FILES, ERRORS

_LAUNCHER_MODULES: Final = ("torch.distributed.", "accelerate.commands.", "deepspeed.")
_LAUNCHER_SCRIPTS: Final = ("torchrun", "accelerate", "deepspeed", "ds")

# The user's own interpreter runs the launcher, so a virtual environment needs no activation. All releases of
# torch.distributed.run accept underscores in options; dashes came with 2.0.
LAUNCHER: Final = (
    'exec "$0" -m torch.distributed.run --nnodes="$WORLD_SIZE" --nproc_per_node="$SLOTS" --node_rank="$RANK"'
    ' --master_addr="$MASTER_ADDR" --master_port="$MASTER_PORT" "$@"'
)

# TaskProlog has no PATH. Without the directory the program starts without the variables.
_ERRORS: Final = f"$SLURM_PLUGIN_DIRECTORY/{ERRORS}/$SLURM_PLUGIN_ATTEMPT/$SLURMD_NODENAME"
_MAKE_ERRORS: Final = f'! /bin/mkdir -p -- "{_ERRORS}" 2>/dev/null || '
# torchrun takes the default of `--log-dir` from PET_LOG_DIR, and gives each of its ranks an error file below it.
_OF_TORCHRUN: Final = {
    "PET_LOG_DIR": f"${{PET_LOG_DIR:-{_ERRORS}/first-$rank}}",
    "TORCHELASTIC_ERROR_FILE": f"${{TORCHELASTIC_ERROR_FILE:-{_ERRORS}/error.json}}",
}
_OF_RANK: Final = {"TORCHELASTIC_ERROR_FILE": f"${{TORCHELASTIC_ERROR_FILE:-{_ERRORS}/rank-$SLURM_PROCID.error.json}}"}
# If the program has switched on PyTorch's flight recorder and names no files for its dumps. Old releases know only the
# names with NCCL, newer ones both.
_DUMPS: Final = f"""\
name={DUMP_FILES[0]}
[ ! "${{TORCH_NCCL_TRACE_BUFFER_SIZE-}}" ] || name={DUMP_FILES[1]}
[ ! "${{TORCH_FR_BUFFER_SIZE-}}${{TORCH_NCCL_TRACE_BUFFER_SIZE-}}" ] \\
|| [ "{"".join(f"${{{name}-}}" for name in DUMP_FILES)}" ] \\
|| [ ! -d "{_ERRORS}" ] || printf 'export %s\\n' "$name={_ERRORS}/{DUMP}"
"""

_NODE: Final = {"RANK": "$SLURM_NODEID"}
_TASK: Final = {
    "RANK": "$SLURM_PROCID",
    "ROLE_RANK": "$SLURM_PROCID",
    "LOCAL_RANK": "$SLURM_LOCALID",
    "GROUP_RANK": "$SLURM_NODEID",
}


class PyTorch(Mode):
    """Mode `pytorch`."""

    interface: ClassVar[str] = "GLOO_SOCKET_IFNAME"
    by_torchrun: ClassVar[bool] = True  # else the ranks of a node would all write the node's error file

    def launch(self, words: tuple[str, ...], shape: Shape) -> Launch:
        """Return the launch on every node by srun; torch.distributed.run starts `python train.py`."""
        if command.starts_tasks(words):
            return Launch(words, "The command starts its own tasks: left as it is, started once, on the first node.")
        if shape.launch == "task":
            return by_srun(shape, words, "The command is left as it is: one task a rank.", ranks=True)
        rest = program(words)
        if rest is None:
            note = "The command names its launcher, or is no Python program: left as it is, started once a node."
            return by_srun(shape, words, note, alone=shape.shown_slots == "1")
        ranks = f"{shape.shown_slots} rank(s) each"
        note = f"The command names no launcher: torch.distributed.run starts it, once a node, {ranks}."
        if shape.logs and shape.logs.per in log_copy.RANK:
            rest = ("--no_python", *log_copy.of_rank(shape.logs, _python(words[0], rest), log_copy.TORCH))
        return by_srun(shape, ("bash", "-p", "-c", LAUNCHER, words[0], *rest), note, alone=False)

    def variables(self, place: Place) -> dict[str, str]:
        """Return MASTER_ADDR, MASTER_PORT, and the counts that are the same in all tasks."""
        first, differs = _first(place)
        return {name: value for name, value in first.items() if name not in differs}

    def task_script(self, place: Place) -> str | None:
        """Return lines that print RANK, and for a rank also LOCAL_RANK, from Slurm's variables of the task."""
        lines = _counting(place) + exports(_first(place)[1])
        if place.launch == "task":
            return lines + _MAKE_ERRORS + exports(_OF_RANK) + _DUMPS
        errors = _OF_TORCHRUN if self.by_torchrun else {"PET_LOG_DIR": _OF_TORCHRUN["PET_LOG_DIR"]}
        return lines + _ranking(place) + _MAKE_ERRORS + exports(errors) + _DUMPS


def program(words: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the words that torch.distributed.run gets for a Python program; None for a launcher or another command."""
    if not command.is_python(words[0]):
        return None
    rest = command.plain_python(words)[1:]
    while rest[:1] == ("-u",):  # torch.distributed.run adds -u
        rest = rest[1:]
    if command.started(words) in (*_LAUNCHER_SCRIPTS, "") or any(
        module.startswith(_LAUNCHER_MODULES) for option, module in itertools.pairwise(rest) if option == "-m"
    ):
        return None
    if not rest[0].startswith("-") or (rest[0] == "-m" and len(rest) > 1):
        return rest
    return ("--no_python", *words)  # options of the interpreter: run it exactly as written


def _python(interpreter: str, rest: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words of a rank for those that torch.distributed.run gets."""
    return rest[1:] if rest[0] == "--no_python" else (interpreter, "-u", *rest)


def _first(place: Place) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return the variables of the first task, and sh words for the variables that differ between tasks."""
    allocation, unlike = place.allocation, bool(_counting(place))
    if place.launch == "task":
        if unlike and not place.grouped:
            raise UsageError(f"{allocation.nodelist}: unlike numbers of tasks; submit with --ntasks-per-node")
        differs = {**_TASK, **({"LOCAL_WORLD_SIZE": "$count"} if unlike else {})}
        return hostfile_format.rank_variables(allocation, 0, place.port), differs
    differs = {**_NODE, **({"SLOTS": "$count"} if unlike else {})}
    return hostfile_format.node_variables(allocation, 0, place.port), differs


def _counting(place: Place) -> str:
    """Return lines of sh that set `count` to the processes on the task's node; empty if all nodes are equal."""
    lines = [f"[ $SLURM_NODEID -lt {first} ] || count={count}\n" for first, count, _ in _like(place)]
    return "".join(lines) if len(lines) > 1 else ""


def _ranking(place: Place) -> str:
    """Return lines of sh that set `rank` to the first rank of the task's node."""
    return "".join(
        f"[ $SLURM_NODEID -lt {first} ] || rank=$((($SLURM_NODEID - {first}) * {count} + {rank}))\n"
        for first, count, rank in _like(place)
    )


def _like(place: Place) -> list[tuple[int, int, int]]:
    """Return the number, the processes and the first rank of each node that has more or fewer than the one before."""
    counts = [host.tasks if place.launch == "task" else host.slots for host in place.allocation.hosts]
    firsts = (0, *itertools.accumulate(counts))
    return [(at, count, firsts[at]) for at, count in enumerate(counts) if not at or count != counts[at - 1]]
