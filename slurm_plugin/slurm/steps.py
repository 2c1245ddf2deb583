"""Steps inside an allocation: our own, by srun from the batch script's node, or a running job's, from anywhere."""

import os
import re
import shutil
import signal
from collections.abc import Mapping, Sequence
from typing import NoReturn

from hostfiles import nodelist
from slurm_plugin.errors import MissingError
from slurm_plugin.slurm import flags
from slurm_plugin.slurm.process import Result, run, submitting_environment

# "srun: error: n2: task 1: Exited with exit code 5", "srun: error: n[1-2]: tasks 0-1: Segmentation fault (core dumped)"
_TASK_ENDED = re.compile(
    rb"srun: error: \S+: tasks? [0-9,-]+: (?:Exited with exit code ([0-9]+)|([A-Z][A-Za-z0-9 /]+))"
)
# "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed.", and
# "srun: error: n1: task 0: Out Of Memory" (src/plugins/task/cgroup/task_cgroup_memory.c, src/srun/launch.c)
_MEMORY = re.compile(rb"^(?:slurmstepd: error: Detected [0-9]+ oom[_-]kill event|srun: error: .*: Out Of Memory)")
# For some seconds after slurmctld has restarted, until the job's nodes have registered again, 22.05 refuses every step
# of a running job with these words, whatever memory it asks for, and srun does not try again.
_REFUSED = re.compile(rb"^srun: error: Unable to create step for job \S+: Memory required by task is not available")
# Variables by which srun hides, marks or cuts what the tasks say, gives them no stdin, reads `argv` as a list of
# programs, or refuses --ntasks-per-node (INPUT ENVIRONMENT VARIABLES in srun(1)); no option takes them back. The last
# makes TaskProlog act.
_SPOIL = ("LABELIO", "UNBUFFEREDIO", "STDINMODE", "STDOUTMODE", "STDERRMODE", "SRUN_MULTI", "NTASKS_PER_GPU")
MEMORY = ("MEM_PER_CPU", "MEM_PER_GPU", "MEM_PER_NODE")  # where memory is a resource, a step that overlaps takes none
_NO_ANSWERS = frozenset(f"SLURM_{name}" for name in (*_SPOIL, "PLUGIN_LAUNCH", *MEMORY))
HELP_S = 10.0
_SIGNALS = {signal.strsignal(number): number for number in signal.valid_signals()}


def first_failure(line: bytes) -> int | None:
    """The exit code (128 + n for signal n) in srun's line about a task that failed; None in any other line.

    srun itself ends with the highest code of all tasks: with --kill-on-bad-exit that is the 143 of those it killed,
    not the code of the one that failed. srun names them in the order they ended.
    """
    found = _TASK_ENDED.match(line)
    if not found:
        return None
    if found[1]:
        return int(found[1])
    number = _SIGNALS.get(found[2].decode().strip())
    return None if number is None else 128 + number


def ran_out_of_memory(line: bytes) -> bool:
    """Whether this is Slurm's line about a step whose tasks the kernel killed for memory."""
    return bool(_MEMORY.search(line))


def was_refused(line: bytes) -> bool:
    """Whether srun says that Slurm has made no step, in the words of a controller that has just restarted."""
    return bool(_REFUSED.match(line))


def on_each_node(
    argv: Sequence[str],
    hosts: Sequence[str],
    groups: Sequence[Sequence[str]] = (),
    *,
    stop: bool = False,
    survive: bool = False,
) -> list[str]:
    """The words that run `argv` once on each host; `stop` ends all where one fails, `survive` none where a node does.

    The step overlaps with others, so it needs no free CPU. `groups` are the nodes of each group of a heterogeneous
    job: srun is told of every group by itself, and of those without a host not at all.
    """
    parts = [[host for host in hosts if host in known] for known in map(set, groups)] if groups else [list(hosts)]
    step = ["srun"]
    for number, names in enumerate(parts):
        if not names:
            continue
        step += [":"] if len(step) > 1 else []
        step += [f"--het-group={number}"] if groups else []
        step += ["--quiet", "--overlap", "--mem=0", f"--kill-on-bad-exit={int(stop)}", "--export=ALL"]
        step += ["--no-kill", "--wait=0"] if survive else []
        step += [f"--nodes={len(names)}", f"--ntasks={len(names)}", "--ntasks-per-node=1"]
        step += [f"--nodelist={nodelist.fold(names)}", "--", *argv]
    return step


def one_task_a_node(
    argv: Sequence[str], hosts: Sequence[str], text: str, deadline_s: float, groups: Sequence[Sequence[str]] = ()
) -> Result:
    """Run `argv` once on each host with `text` on stdin; what was written until then where the deadline passes."""
    words, environ = on_each_node(argv, hosts, groups), answering_environment(os.environ)
    try:
        return run(words, deadline_s=deadline_s, environ=environ, text=text)
    except FileNotFoundError as error:
        raise MissingError("srun was not found on the PATH of the batch script") from error


def takes(flag: str) -> bool | None:
    """Whether the srun of this machine has a flag, such as those of a plugin; None where it cannot be asked."""
    try:
        found = run(["srun", "--help"], deadline_s=HELP_S, environ={**os.environ, "LC_ALL": "C"})
    except OSError:
        return None
    return flag in flags.parse(found.out) if found.code == 0 else None


def answering_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without what would keep the tasks of a step from being asked, or their answers from us."""
    return {name: value for name, value in environ.items() if name not in _NO_ANSWERS}


def beside(
    argv: Sequence[str],
    job_id: int,
    node: str,
    *,
    terminal: bool,
    group: int | None = None,
    options: Sequence[str] = (),
) -> list[str]:
    """The words that run `argv` once on a node of a job that runs, beside whatever it runs there, from any machine.

    Without --overlap the step would wait for the one that is there to end. `terminal`: the task gets one of its own.
    `group`: that of the node in a heterogeneous job, which has the number of its first one. `options`: more of srun's.
    """
    step = ["srun", f"--jobid={job_id}", "--overlap", "--nodes=1", "--ntasks=1", f"--nodelist={node}", "--mpi=none"]
    step += [f"--het-group={group}"] if group is not None else []
    return [*step, "--export=ALL", "--chdir=/", *(["--pty"] if terminal else []), *options, "--", *argv]


def become(argv: Sequence[str]) -> NoReturn:
    """Go on as this step, which then has our terminal, our exit code and whatever signals we are sent.

    Without what the job, in which we may be, told its own steps. Raises MissingError where there is no srun.
    """
    program = shutil.which(argv[0])
    if not program:
        raise MissingError(f"{argv[0]} was not found on the PATH\n  install Slurm's client commands")
    os.execve(program, list(argv), submitting_environment(os.environ))  # noqa: S606 - an argument list, as ever
