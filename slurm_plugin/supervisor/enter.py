"""`job enter`: become a shell on one worker of a job, in the environment of the job's launch there.

`slurm-plugin shell` starts this command in a separate step that overlaps with all others. With `--session` the ssh
server of `job carry` starts it, and it runs the command that the client has sent.
"""

import argparse
import os
import pwd
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from slurm_plugin.errors import MissingError
from slurm_plugin.launch import Launch
from slurm_plugin.launch.container import SHELL
from slurm_plugin.records import launch_record, node_directory
from slurm_plugin.records.launch_record import Saved
from slurm_plugin.slurm import process, steps
from slurm_plugin.supervisor.decide import WHO
from slurm_plugin.supervisor.guard import processes

TASK_FILE_S: Final = 10.0
# Variables of the shell's own step and of the caller's terminal: they replace those of the launch.
_OWN: Final = (
    "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK", "SLURMD_NODENAME",
    "SLURM_CPUS_ON_NODE", "SLURM_GPUS_ON_NODE", "TERM", "COLORTERM", "NO_COLOR",
)  # fmt: skip
# Of a session of ssh: its terminal, and the agent that the client forwards.
_SESSION: Final = ("SSH_AUTH_SOCK", "SSH_CLIENT", "SSH_CONNECTION", "SSH_TTY")
_SENT: Final = "SSH_ORIGINAL_COMMAND"  # the command that the client has sent (sshd(8)); missing if it wants a shell
_NO_SHELLS: Final = ("", "/bin/false", "/usr/bin/false", "/sbin/nologin", "/usr/sbin/nologin")
_BASH, _SH = "/bin/bash", "/bin/sh"


def main(options: argparse.Namespace) -> int:
    """Become the shell. Raise SavedError if the job has no such worker, MissingError if the shell cannot be started."""
    launch = launch_record.read(Path(options.directory))
    worker = existing_worker(launch, options.worker)
    environ, sent = worker_environment(launch, worker), ""
    if options.session:
        environ |= {name: os.environ[name] for name in _SESSION if name in os.environ}
        sent = os.environ.get(_SENT, "")
    for line in () if sent else opening(launch, worker):
        print(f"[slurm_plugin] {line}", file=sys.stderr, flush=True)
    try:
        os.chdir(environ.get("HOME", "/") if sent else launch.cwd)  # clients such as scp expect the home directory
    except OSError as error:
        print(f"[slurm_plugin] {launch.cwd}: {error.strerror}; the shell stays in {os.getcwd()}", file=sys.stderr)  # noqa: PTH109
    words = _words(launch, worker, sent)
    program = shutil.which(words[0], path=environ.get("PATH")) or words[0]
    shell = SHELL[0] if launch.contained else program
    try:
        os.execve(program, words, {**environ, "SHELL": shell})  # noqa: S606 - the user requested a shell
    except OSError as error:
        raise MissingError(f"{program}: {error.strerror}\n  run what this node has: srun --overlap") from error


def existing_worker(launch: Saved, number: int) -> int:
    """Return the number of a worker. Raise SavedError if the job has no such worker."""
    if not 0 <= number < len(launch.nodes):
        raise launch_record.SavedError(
            f"--worker={number}: found no such worker; it has\n  {launch_record.workers(launch.nodes)}"
        )
    return number


def worker_environment(launch: Saved, worker: int) -> dict[str, str]:
    """Return the environment for a program beside the launch's first task on this worker."""
    environ = environment(launch, worker, os.environ)
    return with_task_lines(environ, _task_lines(launch, environ)) if launch.plugin_step else environ


def step_variables(step: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a step that replace those of the launch."""
    return {name: step[name] for name in _OWN if name in step}


def environment(launch: Saved, worker: int, step: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the launch's first task on this worker; `step` is the environment of this step."""
    own = step_variables(step)
    own |= processes.SPARED  # the shell must outlive a restart of the program
    place = {"SLURM_NODEID": worker, "SLURM_PROCID": launch.firsts[worker], "SLURM_LOCALID": 0}
    return {**launch.environ, **own, **{name: str(value) for name, value in place.items()}}


def with_task_lines(environ: Mapping[str, str], printed: str) -> dict[str, str]:
    """Apply the lines that a TaskProlog prints, `export NAME=value` and `unset NAME`, to an environment."""
    changed = dict(environ)
    for line in printed.split("\n"):
        word, _, rest = line.partition(" ")
        name, is_set, value = rest.partition("=")
        if word == "export" and is_set:
            changed[name] = value
        elif word == "unset":
            changed.pop(rest.strip(), None)
    return changed


def _words(launch: Saved, worker: int, sent: str = "") -> list[str]:
    """Return the words that start the shell: its path, or a command that starts it in the launch's container.

    `sent`: a command line that the shell runs; empty: it reads commands.
    """
    inside = [*SHELL[:2], f'{SHELL[2]} -c "$0"', sent] if sent else [*SHELL]
    if launch.step:
        terminal = sys.stdin.isatty() and sys.stdout.isatty()
        node, group = launch.nodes[worker], launch.group(worker)
        options = (*_devices(launch.environ, os.environ), *launch.step)
        return steps.overlap_step(inside, launch.job, node, terminal=terminal, group=group, options=options)
    if launch.contained:
        return [*launch.inside, *inside]
    return [_shell(), *(("-c", sent) if sent else ())]


def _devices(launch: Mapping[str, str], step: Mapping[str, str]) -> tuple[str, ...]:
    """Return srun's options for the GPUs of this node. Slurm refuses a step that inherits a total of the whole job."""
    if "SLURM_GPUS" not in launch:
        return ()
    count = step.get("SLURM_GPUS_ON_NODE", "")
    return (f"--gpus={count}",) if count else ("--gres=none",)


def _task_lines(launch: Saved, environ: Mapping[str, str]) -> str:
    """Return the lines of TaskProlog for the first task of the launch on this node; empty if there are none."""
    try:
        if launch.told:
            return process.run([_SH, "-c", launch.told], deadline_s=TASK_FILE_S, environ=environ).out
        folder = node_directory.user_folder(launch.run_directory, launch.node_directory, make=False)
        path = f"{folder}/{node_directory.TASK_FILE}"
        if not os.path.exists(path):  # noqa: PTH110
            return ""
        return process.run([_SH, path], deadline_s=TASK_FILE_S, environ=environ).out
    except OSError as error:
        print(f"[slurm_plugin] the task's own variables cannot be read: {error}", file=sys.stderr)
        return ""


def opening(launch: Saved, worker: int) -> list[str]:
    """Return the first lines of the shell: the worker, the command, how it ended, and how to run it again."""
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
    """Return the user's login shell; bash or sh if it cannot be used."""
    try:
        own = pwd.getpwuid(os.geteuid()).pw_shell
    except KeyError:
        own = ""
    wanted = (*(() if own in _NO_SHELLS else (own,)), _BASH, _SH)
    return next((program for program in wanted if os.access(program, os.X_OK)), _SH)
