"""Job steps by srun: from the batch script's node, or from any machine for a running job."""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NoReturn, TypeVar

from hostfiles import nodelist
from hostfiles.allocation import without_other_groups
from slurm_plugin.errors import MissingError
from slurm_plugin.slurm import parse
from slurm_plugin.slurm.input_variables import INPUT
from slurm_plugin.slurm.process import Result, plain_environment, run

# "srun: error: n2: task 1: Exited with exit code 5", "srun: error: n[1-2]: tasks 0-1: Segmentation fault (core dumped)"
_TASK_ENDED = re.compile(
    rb"srun: error: \S+: tasks? [0-9,-]+: (?:Exited with exit code ([0-9]+)|([A-Z][A-Za-z0-9 /]+))"
)
# "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed.", and
# "srun: error: n1: task 0: Out Of Memory" (src/plugins/task/cgroup/task_cgroup_memory.c, src/srun/launch.c)
_MEMORY = re.compile(rb"^(?:slurmstepd: error: Detected [0-9]+ oom[_-]kill event|srun: error: .*: Out Of Memory)")
# For some seconds after a restart of slurmctld, until the job's nodes have registered again, 22.05 refuses every step
# of a running job with this error, whatever memory the step requests. srun does not try again.
_REFUSED = re.compile(rb"^srun: error: Unable to create step for job \S+: Memory required by task is not available")
# With these variables srun reads `argv` as a list of programs, or refuses --ntasks-per-node.
_SPOIL = ("SLURM_SRUN_MULTI",)
MEMORY = ("SLURM_MEM_PER_CPU", "SLURM_MEM_PER_GPU", "SLURM_MEM_PER_NODE")  # an overlapping step must not take memory
# With these srun requests devices. They may be inherited from the job that submitted this one. Without them a step gets
# what this job has requested. 26.05 and 24.11 write --gpus-per-task into the last two.
DEVICES = (
    "SLURM_GRES", "SLURM_GPUS", "SLURM_GPUS_PER_NODE", "SLURM_GPUS_PER_SOCKET", "SLURM_GPUS_PER_TASK",
    "SLURM_NTASKS_PER_GPU", "SLURM_CPUS_PER_GPU", "SLURM_TRES_PER_TASK", "SLURM_TRES_BIND",
)  # fmt: skip
# The batch host's GPUs, CPUs and memory nodes. SLURM_PLUGIN_LAUNCH makes TaskProlog act.
_OF_BATCH_HOST = ("SLURM_JOB_GPUS", "SLURM_CPU_BIND", "SLURM_MEM_BIND", "SLURM_PLUGIN_LAUNCH")
# With the user's INPUT srun may hide, mark or cut the output of tasks, give them no stdin, or start none. No option
# overrides all of them.
_NO_ANSWERS = (*INPUT, *_SPOIL, *_OF_BATCH_HOST, *MEMORY, *DEVICES)
HELP_S = 10.0
POLL_S = 0.1
MOST_OUTPUT = 1 << 16
# salloc's exit code if it gets no allocation; otherwise its exit code is the command's.
REFUSED = MappingProxyType(dict.fromkeys(("SLURM_EXIT_ERROR", "SLURM_EXIT_IMMEDIATE"), "2"))
T = TypeVar("T")
_SIGNALS = {signal.strsignal(number): number for number in signal.valid_signals()}


def first_failure(line: bytes) -> int | None:
    """Return the exit code (128 + n for signal n) in srun's line about a failed task; None for any other line.

    srun exits with the highest code of all tasks. With --kill-on-bad-exit this is 143, the code of the tasks that
    srun killed, not the code of the failed task. srun reports the tasks in the order in which they ended.
    """
    found = _TASK_ENDED.match(line)
    if not found:
        return None
    if found[1]:
        return int(found[1])
    number = _SIGNALS.get(found[2].decode().strip())
    return None if number is None else 128 + number


def ran_out_of_memory(line: bytes) -> bool:
    """Return whether this line of Slurm says that the kernel killed tasks of the step because of memory."""
    return bool(_MEMORY.search(line))


def was_refused(line: bytes) -> bool:
    """Return whether this line of srun says that a controller refused the step just after a restart of slurmctld."""
    return bool(_REFUSED.match(line))


def on_each_node(
    argv: Sequence[str],
    hosts: Sequence[str],
    groups: Sequence[Sequence[str]] = (),
    *,
    stop: bool = False,
    survive: bool = False,
    devices: bool = False,
    directory: str = "",
) -> list[str]:
    """Return the srun command that runs `argv` once on each host.

    `stop`: srun ends all tasks when one fails. `survive`: srun ends no task when a node fails. The step overlaps with
    others, so it needs no free CPU. `groups`: the nodes of each group of a heterogeneous job. The command has one part
    for each group with a host. `devices`: the step shares the job's devices on its nodes. Slurm can do this only if the
    job requested them per node: of a total Slurm would refuse the step ("Insufficient GRES available in allocation").
    `directory`: of Slurm's commands; if it has no srun, the one on the PATH is called.
    """
    parts = [[host for host in hosts if host in known] for known in map(set, groups)] if groups else [list(hosts)]
    own = f"{directory}/srun"
    step = [own if directory and os.access(own, os.X_OK) else "srun"]
    for number, names in enumerate(parts):
        if not names:
            continue
        step += [":"] if len(step) > 1 else []
        step += [f"--het-group={number}"] if groups else []
        step += ["--quiet", "--overlap", "--mem=0", *([] if devices else ["--gres=none"])]
        step += [f"--kill-on-bad-exit={int(stop)}", "--export=ALL"]
        step += ["--no-kill", "--wait=0"] if survive else []
        step += [f"--nodes={len(names)}", f"--ntasks={len(names)}", "--ntasks-per-node=1"]
        step += [f"--nodelist={nodelist.fold(names)}", "--", *argv]
    return step


def one_task_a_node(
    argv: Sequence[str],
    hosts: Sequence[str],
    text: str,
    deadline_s: float,
    groups: Sequence[Sequence[str]] = (),
    *,
    directory: str = "",
) -> Result:
    """Run `argv` once on each host with `text` on stdin. If the deadline passes, return the output until then."""
    words = on_each_node(argv, hosts, groups, devices=True, directory=directory)
    environ = answering_environment(os.environ)
    try:
        return run(words, deadline_s=deadline_s, environ=environ, text=text)
    except FileNotFoundError as error:
        raise MissingError("srun was not found on the PATH of the batch script") from error


def takes(flag: str) -> bool | None:
    """Return whether this machine's srun has a flag, for example of a SPANK plugin; None if srun does not run."""
    try:
        found = run(["srun", "--help"], deadline_s=HELP_S, environ={**os.environ, "LC_ALL": "C"})
    except OSError:
        return None
    return flag in parse.sbatch_flags(found.out) if found.code == 0 else None


def answering_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without the variables that change a step's stdin, output, devices, memory or CPUs."""
    found = without_other_groups(environ)
    return {name: value for name, value in found.items() if not name.startswith(_NO_ANSWERS)}


def overlap_step(
    argv: Sequence[str],
    job_id: int,
    node: str,
    *,
    terminal: bool,
    group: int | None = None,
    options: Sequence[str] = (),
) -> list[str]:
    """Return the srun command that runs `argv` once on a node of a running job, from any machine.

    Without --overlap the step would wait for the job's own step to end. `terminal`: give the task a terminal. `group`:
    the node's group in a heterogeneous job. `options`: more options of srun.
    """
    step = ["srun", f"--jobid={job_id}", "--overlap", "--nodes=1", "--ntasks=1", f"--nodelist={node}", "--mpi=none"]
    step += [f"--het-group={group}"] if group is not None else []
    return [*step, "--export=ALL", "--chdir=/", *(["--pty"] if terminal else []), *options, "--", *argv]


def in_background(argv: Sequence[str], answer: Callable[[str], T | None], deadline_s: float) -> tuple[T | None, str]:
    """Start a step that outlives this process. Return the answer that its output has, and the output so far.

    The answer is None if the step ends, or the deadline passes, without one; then the step is ended. The step's srun
    stays on this machine as long as the step runs. Raise MissingError if srun is not on the PATH.
    """
    with tempfile.TemporaryFile() as out:  # not a pipe: srun must not fail when this process has gone
        try:
            step = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd="/",
                env=plain_environment(os.environ),
                start_new_session=True,  # a terminal that closes does not end it
            )
        except FileNotFoundError as error:
            raise _no(argv[0]) from error
        end, found = time.monotonic() + deadline_s, None
        try:
            while True:
                ended = step.poll() is not None  # before the output is read: an ended step prints no more
                text = os.pread(out.fileno(), MOST_OUTPUT, 0).decode(errors="replace")
                found = answer(text)
                if found is not None or ended or time.monotonic() > end:
                    return found, text
                time.sleep(POLL_S)
        finally:
            if found is None and step.poll() is None:
                os.killpg(step.pid, signal.SIGTERM)


def piped(argv: Sequence[str]) -> "subprocess.Popen[bytes]":
    """Start a step with pipes to its stdin and stdout. Raise MissingError if srun is not on the PATH."""
    pipe = subprocess.PIPE
    try:
        return subprocess.Popen(argv, stdin=pipe, stdout=pipe, env=plain_environment(os.environ))
    except FileNotFoundError as error:
        raise _no(argv[0]) from error


def in_allocation(
    argv: Sequence[str], hosts: Sequence[str], limit_s: float, wait_s: int, partition: str = ""
) -> list[str]:
    """Return the salloc command that runs `argv` on this machine while it has exactly these nodes, without other jobs.

    salloc waits up to `wait_s` (at least 2) for the nodes. It ends the job when `argv` ends, and sends `argv` SIGTERM
    when the job is cancelled.
    """
    where = [f"--nodes={len(hosts)}", f"--nodelist={nodelist.fold(hosts)}", "--exclusive", "--kill-command"]
    where += [f"--partition={partition}"] if partition else []
    minutes = int(limit_s // 60 + 1)
    return ["salloc", "--job-name=check-fabric", *where, f"--time={minutes}", f"--immediate={wait_s}", *argv]


def become(argv: Sequence[str], variables: Mapping[str, str] = MappingProxyType({})) -> NoReturn:
    """Replace this process with the step, which takes over its terminal, exit code and signals.

    Drop the SLURM_ variables of an outer job, and add `variables`. Raise MissingError if the program is not found.
    """
    program = shutil.which(argv[0])
    if not program:
        raise _no(argv[0])
    os.execve(program, list(argv), {**plain_environment(os.environ), **variables})  # noqa: S606 - an argument list, no shell


def _no(program: str) -> MissingError:
    return MissingError(f"{program} was not found on the PATH\n  install Slurm's client commands")
