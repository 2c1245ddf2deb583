"""DeepSpeed: its launcher once per node (`launch: node`), or one task per rank (`launch: task`).

deepspeed.launcher.launch starts `python train.py` and adds `--local_rank`. `deepspeed` also uses this launcher on each
node. This mode puts `--no_ssh` and related options (DeepSpeed 0.14.5 and later) before the arguments of `deepspeed
train.py`, so that the user's own options win. Without these options `deepspeed` would use ssh. Without a hostfile it
would train on one node. Both launchers exit with the code of the rank that failed, or with 256 - n after signal n. The
code of other programs is 128 + n. Source: deepspeed/launcher/{runner,launch}.py of 0.19.8.
"""

import base64
import json
import re
from typing import Final

from hostfiles import mpi
from slurm_plugin.errors import UsageError
from slurm_plugin.launch import command, log_copy, pytorch
from slurm_plugin.launch.mode import HOSTFILE, LONGEST_VALUE, Launch, Place, Shape, by_srun

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
# What `env`, `uv run` or `python -m` may start: `deepspeed`, also by the name of its module.
_STARTED: Final = _COMMANDS | {"deepspeed.launcher.runner"}
_NO_SSH: Final = re.compile(r"--no_ssh\b")  # not --no_ssh_check
# Options of `deepspeed` without a value. The other options have one, in the same word or the next.
_FLAGS: Final = frozenset(
    {"--module", "--no_python", "--no_local_rank", "--no_ssh", "--no_ssh_check", "--force_multi", "--save_pid"}
    | {"--elastic_training", "--bind_cores_to_rank"}
)
_OTHER_NODES: Final = frozenset({"--num_nodes", "--include", "-i", "--exclude", "-e"})


class DeepSpeed(pytorch.PyTorch):
    """Mode `deepspeed`: mode `pytorch`, with DeepSpeed's launcher and hostfile."""

    by_torchrun = False

    def launch(self, words: tuple[str, ...], shape: Shape) -> Launch:
        """Return the launch by a DeepSpeed launcher, or by srun.

        Raise UsageError for options that choose nodes, and for `deepspeed` without a hostfile in a shell or after
        another program, such as `env`.
        """
        started = "started once a node"
        if shape.launch == "task" or command.starts_tasks(words):
            return super().launch(words, shape)
        if command.name(words[0]) in _COMMANDS:
            options = _options(words[1:])
            if "--launcher" in options:
                note = "The command chooses DeepSpeed's launcher: started once, on the first node, with our hostfile."
                return Launch((words[0], f"--hostfile={shape.hostfile}", *words[1:]), note)
            if found := sorted(options & _OTHER_NODES):
                raise UsageError(f"command: found {found[0]}; the nodes are the job's own: set `nodes:` instead")
            note = f"`deepspeed` is {started}, without ssh: it is given the node's number, and where rank 0 listens."
            return by_srun(shape, ("bash", "-p", "-c", DEEPSPEED, *words), note, alone=False)
        text = _starting(words, shape.nodes)
        if text and not _NO_SSH.search(text):
            if "--hostfile" not in text:
                first = command.name(words[0])
                raise UsageError(
                    f"command: found deepspeed started by {first}, where it finds no hostfile and trains on one node\n"
                    f"  write it without {first}, or with: deepspeed --hostfile=$SLURM_PLUGIN_HOSTFILE"
                )
            return Launch(words, "The command names deepspeed: left as it is, started once, on the first node.")
        program = _program(words)
        if program is None:
            note = f"The command is no plain Python program: left as it is, {started}."
            return by_srun(shape, words, note, alone=shape.shown_slots == "1")
        note = (
            f"The command names no launcher: deepspeed.launcher.launch, {started}, starts {shape.shown_slots} rank(s)."
        )
        if shape.logs and shape.logs.per in log_copy.RANK:
            program = ("--no_local_rank", "--no_python", *_ranks(shape.logs, words))
        return by_srun(shape, ("bash", "-p", "-c", PYTHON, words[0], *program), note, alone=False)

    def files(self, place: Place) -> dict[str, str]:
        """Return DeepSpeed's hostfile. All jobs of a node share the default file, /job/hostfile."""
        return {HOSTFILE: mpi.openmpi(place.allocation)}

    def variables(self, place: Place) -> dict[str, str]:
        """Return PyTorch's variables, and for a launcher the hosts with their ranks, in the form of `deepspeed`."""
        if place.launch == "task":
            return super().variables(place)
        world = {host.name: list(range(host.slots)) for host in place.allocation.hosts}
        info = base64.urlsafe_b64encode(json.dumps(world, separators=(",", ":")).encode()).decode()
        told = {"SLURM_PLUGIN_WORLD_INFO": info} if len(info) <= LONGEST_VALUE else {}
        return {**super().variables(place), **told}


def _starting(words: tuple[str, ...], nodes: int) -> str:
    """Return the text that starts `deepspeed` in a shell or, on several nodes, after `env` or the like; else ""."""
    if text := command.shell_text(words):
        return text if command.names(words, _COMMANDS) else ""
    return " ".join(words) if nodes > 1 and command.started(words) in _STARTED else ""  # one node needs no hostfile


def _options(words: tuple[str, ...]) -> set[str]:
    """Return the options of `deepspeed` itself: those before the program, a script or with `--module` a module."""
    found = set()
    rest = iter(words)
    for word in rest:
        if not word.startswith("-"):
            break
        option, equals, _ = word.partition("=")
        found.add(option)
        if not equals and option not in _FLAGS and next(rest, "").endswith(".py"):
            break  # the program after a flag that is not in _FLAGS
    return found


def _ranks(logs: log_copy.Logs, words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words of a rank with its log file, as deepspeed.launcher.launch would start it."""
    rest = pytorch.program(words) or ()
    if rest[0] == "--no_python":
        return log_copy.of_rank(logs, rest[1:], log_copy.TORCH)
    before = 4 if rest[0] == "-m" else 3  # python -u SCRIPT, python -u -m MODULE
    more = f'set -- "${{@:1:{before}}}" "--local_rank=$LOCAL_RANK" "${{@:{before + 1}}}"\n'
    return log_copy.of_rank(logs, (words[0], "-u", *rest), log_copy.TORCH, more=more)


def _program(words: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the words that deepspeed.launcher.launch gets for a Python program; None for other commands."""
    rest = pytorch.program(words)
    if rest is None:
        return None
    if rest[0] == "-m":
        return ("--module", *rest[1:])
    if rest[0] == "--no_python":  # else `--local_rank` would become an option of the interpreter
        return ("--no_local_rank", *rest)
    return rest
