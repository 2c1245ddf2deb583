"""`job enter`: on one worker of a job, become a shell in the environment that the job's launch had there.

`slurm-plugin shell` starts it there, in a step of its own that overlaps with all others.
"""

import argparse
import os
import pwd
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from slurm_plugin.container import SHELL
from slurm_plugin.decide import WHO
from slurm_plugin.errors import MissingError
from slurm_plugin.job import saved, taskfile, wipe
from slurm_plugin.job.saved import Saved
from slurm_plugin.modes import Launch
from slurm_plugin.slurm import process, steps

TASK_FILE_S: Final = 10.0
# What Slurm sets for a step on its node, and what describes the caller's terminal: the shell has its own of these.
_OWN: Final = (
    "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK", "SLURMD_NODENAME",
    "SLURM_CPUS_ON_NODE", "SLURM_GPUS_ON_NODE", "TERM", "COLORTERM", "NO_COLOR",
)  # fmt: skip
_NO_SHELLS: Final = ("", "/bin/false", "/usr/bin/false", "/sbin/nologin", "/usr/sbin/nologin")
_BASH, _SH = "/bin/bash", "/bin/sh"


def main(options: argparse.Namespace) -> int:
    """Become the shell; returns only where there is none."""
    launch = saved.read(Path(options.directory))
    if not 0 <= options.worker < len(launch.nodes):
        raise saved.SavedError(
            f"--worker={options.worker}: found no such worker; it has\n  {saved.workers(launch.nodes)}"
        )
    environ = environment(launch, options.worker, os.environ)
    if launch.own_step:
        environ = told(environ, _said(launch, environ))
    for line in opening(launch, options.worker):
        print(f"[slurm_plugin] {line}", file=sys.stderr, flush=True)
    try:
        os.chdir(launch.cwd)
    except OSError as error:
        print(f"[slurm_plugin] {launch.cwd}: {error.strerror}; the shell stays in {os.getcwd()}", file=sys.stderr)  # noqa: PTH109
    words = _words(launch, options.worker)
    program = shutil.which(words[0], path=environ.get("PATH")) or words[0]
    shell = SHELL[0] if launch.contained else program
    try:
        os.execve(program, words, {**environ, "SHELL": shell})  # noqa: S606 - a shell is what was asked for
    except OSError as error:
        raise MissingError(f"{program}: {error.strerror}\n  run what this node has: srun --overlap") from error


def environment(launch: Saved, worker: int, step: Mapping[str, str]) -> dict[str, str]:
    """The launch's environment on this worker, as its first task there had it; `step` is what this step has."""
    own = {name: step[name] for name in _OWN if name in step}
    own |= wipe.SPARED  # what a person has open here outlives a restart of the program
    place = {"SLURM_NODEID": worker, "SLURM_PROCID": launch.firsts[worker], "SLURM_LOCALID": 0}
    return {**launch.environ, **own, **{name: str(value) for name, value in place.items()}}


def told(environ: Mapping[str, str], printed: str) -> dict[str, str]:
    """The environment after the lines that a TaskProlog prints: `export NAME=value`, `unset NAME`."""
    changed = dict(environ)
    for line in printed.split("\n"):
        word, _, rest = line.partition(" ")
        name, is_set, value = rest.partition("=")
        if word == "export" and is_set:
            changed[name] = value
        elif word == "unset":
            changed.pop(rest.strip(), None)
    return changed


def _words(launch: Saved, worker: int) -> list[str]:
    """What the shell is started by: nothing but its own name, unless the launch runs in a container."""
    if launch.step:
        terminal = sys.stdin.isatty() and sys.stdout.isatty()
        node, group = launch.nodes[worker], launch.group(worker)
        return steps.beside(SHELL, launch.job, node, terminal=terminal, group=group, options=launch.step)
    return [*launch.inside, *SHELL] if launch.contained else [_shell()]


def _said(launch: Saved, environ: Mapping[str, str]) -> str:
    """What TaskProlog said to the first task of the launch on this node; empty where it had nothing to say."""
    try:
        if launch.told:
            return process.run([_SH, "-c", launch.told], deadline_s=TASK_FILE_S, environ=environ).out
        path = f"{taskfile.folder(launch.run_directory, launch.node_directory)}/{taskfile.TASK_FILE}"
        if not os.path.exists(path):  # noqa: PTH110
            return ""
        return process.run([_SH, path], deadline_s=TASK_FILE_S, environ=environ).out
    except OSError as error:
        print(f"[slurm_plugin] what the task was told cannot be read: {error}", file=sys.stderr)
        return ""


def opening(launch: Saved, worker: int) -> list[str]:
    """What the shell opens with: where it is, what was run, how it ended, and how to run it again."""
    who = "it" if launch.phase == "program" else WHO[launch.phase]
    how = f"{who} ended with exit code {launch.code}" if launch.code is not None else f"{who} is still running"
    lines = [
        f"worker-{worker} of job {launch.job} is {launch.nodes[worker]}",
        f"the command was: {_shown(launch.words)}; {how}",
    ]
    if words := launch.here(worker):
        lines.append(f"by hand on this node: {_shown(words)}")
    else:
        lines.append(f"it was started on worker-0 ({launch.nodes[0]}): {_shown(launch.argv)}")
    if launch.state == "failed":
        lines.append(
            f"on all nodes: slurm-plugin rerun {launch.job}; to give them back: slurm-plugin release {launch.job}"
        )
    return lines


def _shown(words: tuple[str, ...]) -> str:
    return Launch(words, "").shown


def _shell() -> str:
    """The user's own shell; bash, or sh where there is none, for one who has none that can be used."""
    try:
        own = pwd.getpwuid(os.geteuid()).pw_shell
    except KeyError:
        own = ""
    wanted = (*(() if own in _NO_SHELLS else (own,)), _BASH, _SH)
    return next((program for program in wanted if os.access(program, os.X_OK)), _SH)
