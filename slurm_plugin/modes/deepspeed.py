"""DeepSpeed: its own launcher once a node (`launch: node`), or one task a rank (`launch: task`).

`python train.py` is started by deepspeed.launcher.launch, what `deepspeed` itself starts on each node; it gives the
program `--local_rank` too. `deepspeed train.py` gets `--no_ssh` and what goes with it (DeepSpeed 0.14.5 and later) in
front, so that an option of the user's own wins. Left to itself it would reach the nodes by ssh, and where it finds no
hostfile train on one node alone. Either ends with the code of its rank that failed, and with 256 - n after signal n;
there the exit code shows no 128 + n. Read in, and tried with, deepspeed/launcher/{runner,launch}.py of 0.19.8.
"""

import base64
import itertools
import json
from typing import Final

from hostfiles import deepspeed as hostfile_format
from slurm_plugin.errors import UsageError
from slurm_plugin.modes import command, pytorch, step
from slurm_plugin.modes.base import HOSTFILE, LONGEST_VALUE, Launch, Place, Shape

PYTHON: Final = (
    'exec "$0" -m deepspeed.launcher.launch'
    ' --world_info="${SLURM_PLUGIN_WORLD_INFO:?is too long for so many nodes: use launch: task}" --node_rank="$RANK"'
    ' --master_addr="$MASTER_ADDR" --master_port="$MASTER_PORT" "$@"'
)
DEEPSPEED: Final = (
    'exec "$0" --no_ssh --node_rank="$RANK" --master_addr="$MASTER_ADDR" --master_port="$MASTER_PORT"'
    ' --hostfile="$SLURM_PLUGIN_HOSTFILE" "$@"'
)
_COMMANDS: Final = frozenset({"deepspeed", "ds"})
_OTHER_NODES: Final = frozenset({"--num_nodes", "--include", "-i", "--exclude", "-e"})


class DeepSpeed(pytorch.PyTorch):
    """Mode `deepspeed`: mode `pytorch`, with DeepSpeed's launcher and hostfile."""

    started_by = "deepspeed.launcher.launch"
    launchers = (*sorted(_COMMANDS), *pytorch.PyTorch.launchers)

    def launch(self, words: tuple[str, ...], shape: Shape) -> Launch:
        """Raises UsageError for options that choose nodes, and for `deepspeed` in a shell without its hostfile."""
        on_each, started = step.srun(shape), "started once a node"
        if shape.launch == "task" or command.name(words[0]) in command.MPI_LAUNCHERS:
            return super().launch(words, shape)
        if command.name(words[0]) in _COMMANDS:
            options = _options(words[1:])
            if "--launcher" in options:
                note = "The command chooses DeepSpeed's launcher: started once, on the first node, with our hostfile."
                return Launch((words[0], f"--hostfile={shape.hostfile}", *words[1:]), note)
            if found := sorted(options & _OTHER_NODES):
                raise UsageError(f"command: found {found[0]}; the nodes are the job's own: set `nodes:` instead")
            note = f"`deepspeed` is {started}, without ssh: it is given the node's number, and where rank 0 listens."
            return Launch((*on_each, *shape.inside("bash", "-c", DEEPSPEED, *words)), note)
        text = command.shell_text(words)
        if text and command.names(words, _COMMANDS) and "--no_ssh" not in text:
            if "--hostfile" not in text:
                raise UsageError(
                    "command: found deepspeed inside a shell, where it finds no hostfile and trains on one node\n"
                    "  write it without the shell, or with: deepspeed --hostfile=$SLURM_PLUGIN_HOSTFILE"
                )
            return Launch(words, "The command names deepspeed: left as it is, started once, on the first node.")
        program = _program(words)
        if program is None:
            note = f"The command is no plain Python program: left as it is, {started}."
            return Launch((*on_each, *shape.inside(*words)), note)
        note = (
            f"The command names no launcher: deepspeed.launcher.launch, {started}, starts {shape.shown_slots} rank(s)."
        )
        return Launch((*on_each, *shape.inside("bash", "-c", PYTHON, words[0], *program)), note)

    def files(self, place: Place) -> dict[str, str]:
        """DeepSpeed's hostfile. Not /job/hostfile, where it would look by itself: that is no job's own."""
        return {HOSTFILE: hostfile_format.text(place.allocation)}

    def variables(self, place: Place) -> dict[str, str]:
        """PyTorch's, and for a launcher the hosts with their ranks, as `deepspeed` hands them to it."""
        if place.launch == "task":
            return super().variables(place)
        world = {host.name: list(range(host.slots)) for host in place.allocation.hosts}
        info = base64.urlsafe_b64encode(json.dumps(world, separators=(",", ":")).encode()).decode()
        told = {"SLURM_PLUGIN_WORLD_INFO": info} if len(info) <= LONGEST_VALUE else {}
        return {**super().variables(place), **told}


def _options(words: tuple[str, ...]) -> set[str]:
    """The options of `deepspeed` itself: those before the program, which is the first word that ends in .py."""
    own = itertools.takewhile(lambda word: not word.endswith(".py"), words)
    return {word.partition("=")[0] for word in own}


def _program(words: tuple[str, ...]) -> tuple[str, ...] | None:
    """What deepspeed.launcher.launch is given for a Python program; None for anything else."""
    rest = pytorch.program(words)
    if rest is None:
        return None
    if rest[0] == "-m":
        return ("--module", *rest[1:])
    if rest[0] == "--no_python":  # else `--local_rank` would become an option of the interpreter
        return ("--no_local_rank", *rest)
    return rest
