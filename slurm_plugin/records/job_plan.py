"""The job plan: the supervisor's settings in a batch script, as JSON, one key per line.

A script made from a job spec passes the plan as an argument: `exec slurm-plugin job supervise '{...}' -- COMMAND`. A
script of `slurm-plugin sbatch` has the plan in comments, because no shell should run before the user's script: dash
would drop exported functions, and bash would add variables. The plan omits default values. Standard library only.
"""

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from slurm_plugin.errors import UsageError
from slurm_plugin.records.token import INFINIBAND

FIRST_LINE_BYTES: Final = 127  # of a `#!` line that Linux before 5.1 reads (execve(2), Interpreter scripts)
_COMMENT: Final = "#slurm_plugin-plan "
_VERB: Final = "job"
LOGS_PER: Final = ("job", "node", "rank", "both")  # for which of them there are log files beside the job's
ACCESS: Final = ("none", "read-only", "read-write")  # what a group may do with a job, from the least
_ACCEPTED: Final[Mapping[str, tuple[str, ...]]] = {
    "launch": ("node", "task"),
    "infiniband": INFINIBAND,
    "logs_per": LOGS_PER,
    "share_access": ("", *ACCESS),
}
T = TypeVar("T", bound=tuple[Any, ...])


class JobPlan(NamedTuple):
    """How a job is launched, checked and restarted. Paths are absolute, or relative to the job's directory."""

    mode: str = ""  # how the command is launched: openmpi, pytorch, ...
    command: tuple[str, ...] = ()  # the user's program and its arguments
    variables: bool = False  # the command contains ${NAME} for a variable, and $$ for a dollar
    launch: str = "node"  # node: one launcher per node; task: one task per rank
    slots: int = 0  # slots of each node in hostfiles; 0: the number of its accelerators
    groups: tuple[tuple[int, int | None], ...] = ()  # of a heterogeneous job: (slots of a node, CPUs of a process)
    retries: int = 0  # restarts requested; 0: no checks either
    nodes: int = 0  # nodes that the program uses; 0: all nodes of the job
    min_nodes: int = 0  # fewest nodes that the program can run on; 0: `nodes`
    unconditional: bool = False  # restart it after any failure
    grow_s: float = 0.0  # requeue it when more nodes have been free for so long; 0: never
    no_kill: bool = False  # Slurm keeps the job when it loses a node
    grace_s: float = 0.0  # time to save before the nodes or the time limit end
    hang_timeout_s: float = 0.0  # longest time without output; 0: no limit
    hold_s: int = 0  # time to keep the nodes after a failure
    any_of: bool = False  # one of several alternative jobs, of which only one runs
    infiniband: str = "auto"
    prechecks: tuple[str, ...] = ()  # checks in addition to the site's: fabric
    checkpoint: str = ""  # the program's checkpoint directory
    progress: str = ""  # the regular expression that finds steps in the program's log; empty: the known lines
    slow_threshold: float = 0.0  # hardware time by end-to-end time of an iteration above which it is slow; 0: no limit
    slow_action: str = ""  # what happens then: alert, reschedule
    slow_pattern: str = ""  # the regular expression that finds the two times; empty: the known line
    env_files: tuple[str, ...] = ()  # files with variables for the command
    own_env: tuple[str, ...] = ()  # variables that env_files do not change
    logs: str = ""  # the directory of the files of nodes and ranks; empty without such files
    logs_per: str = LOGS_PER[0]
    label: bool = False  # prefix the lines of the job's log with ranks
    before: tuple[str, ...] = ()  # hooks before the command
    after: tuple[str, ...] = ()  # hooks after the command
    found_hooks: bool = True  # also run the hooks beside the program
    on_restart: tuple[str, ...] = ()  # scripts that run on the first node before the program starts again
    on_failure: tuple[str, ...] = ()  # and before the job ends as failed
    on_hold: tuple[str, ...] = ()  # and when a hold begins
    share_group: str = ""  # the group with which the job is shared
    share_access: str = ""  # what the group may do; empty: nothing is changed
    stage_in: tuple[str, ...] = ()  # NAME:PATH, data that every node copies
    container: Mapping[str, Any] = {}  # fields of slurm_plugin.launch.container.Container
    plain: bool = False  # set no launch variables; print nothing before a failure
    of_site: bool = False  # only the site requests these features, not the user
    ps: int = 0  # mode tensorflow: parameter servers
    chief: bool = False  # mode tensorflow: rank 0 is the chief
    evaluator: bool = False  # mode tensorflow: the last rank is the evaluator
    table: bool = True  # mode ascend: with a rank table
    messages: str = "normal"  # mode ascend: how much MindSpore and CANN log
    trial: int = 0  # the trial of an experiment that this launch is; 0: none
    continued: bool = False  # the trial has run before, in this job or in another one
    mark: str = ""  # the line above the user's script, in a batch script of `slurm-plugin sbatch`
    batch_script: str = ""  # the path of that script; not part of the JSON


def text(plan: JobPlan) -> str:
    """Return the JSON of a plan, one key per line."""
    lines = [f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in changed(plan).items()]
    return "{\n" + ",\n".join(lines) + "\n}"


def changed(record: Any) -> dict[str, Any]:
    """Return the fields of a named tuple that differ from their defaults."""
    return {name: value for name, value in record._asdict().items() if value != record._field_defaults.get(name)}


def read(given: str) -> JobPlan:
    """Parse the JSON of a plan. Raises UsageError if the text is not a plan."""
    try:
        found = json.loads(given)
    except ValueError as error:
        raise _refused(f"it is no JSON: {error}") from error
    if not isinstance(found, dict) or not found.get("mode"):
        raise _refused("it names no mode")
    plan = fields(JobPlan, found)
    for name, accepted in _ACCEPTED.items():
        if (value := getattr(plan, name)) not in accepted:
            raise _refused(f"{name}: found {value!r}; accepted: {', '.join(accepted)}")
    return plan


def fields(kind: type[T], given: Mapping[str, Any]) -> T:
    """Return the named tuple `kind` with these fields; turn lists into tuples.

    Raises UsageError for an unknown field, and for a value of another type than the default.
    """
    defaults: Mapping[str, Any] = kind._field_defaults  # type: ignore[attr-defined]
    values = {}
    for name, value in given.items():
        if name not in kind._fields:  # type: ignore[attr-defined]
            raise _refused(f"found {name!r}, which this release does not know")
        values[name] = tuples(value)
        wanted = type(defaults.get(name, ""))
        if type(values[name]) is not wanted and not (wanted is float and type(value) is int):
            raise _refused(f"{name}: found {value!r}; accepted: {wanted.__name__}")
    return kind(**values)


def _refused(why: str) -> UsageError:
    return UsageError(f"the job plan in the batch script: {why}; submit the job again")


def tuples(value: Any) -> Any:
    """Return a JSON value with its lists replaced by tuples."""
    if isinstance(value, dict):
        return {name: tuples(each) for name, each in value.items()}
    return tuple(map(tuples, value)) if isinstance(value, list) else value


def check_of(python: str, command: str, option: str = "-P") -> str:
    """Return the line of a batch script that ends the job with a message where `command` and its Python do not work.

    `option`: the options of this Python.
    """
    said = f"cannot run {command}: is its directory shared with the nodes, and do they have the same Python?"
    fails = f'echo "[slurm_plugin] error,exiting: $(uname -n)" {shlex.quote(said)}; exit 127'
    return f"{shlex.quote(python)} {option}c 'import slurm_plugin' || {{ {fails}; }}"


def batch_script(command: str, block: Sequence[bytes], plan: JobPlan, python: str = "") -> bytes:
    """Return the part of an sbatch wrapper script before the user's script. `block`: the lines for sbatch.

    `python`: that of `command`, which may be missing on a node; empty for the deployed command.
    """
    first = f"#!{command} {_VERB}"
    by_kernel = not python and len(os.fsencode(first)) <= FIRST_LINE_BYTES and not set(command) & set(" \t")
    ours = [
        "# Made by `slurm-plugin sbatch`: the script below runs as it stands, by its own first line.",
        *(f"{_COMMENT}{line}" for line in text(plan).splitlines()),
        *([check_of(python, command)] if python else []),
        *([] if by_kernel else [f"exec {shlex.quote(command)} {_VERB} " + '"$0"']),
        plan.mark,
    ]
    head = first if by_kernel else "#!/bin/bash -p"  # -p: bash does not import exported functions, but passes them on
    return b"\n".join((os.fsencode(head), *block, *map(os.fsencode, ours), b""))


def read_batch_script(path: str) -> JobPlan:
    """Read the plan in the batch script at `path`. Raises UsageError if the script has no plan, or OSError."""
    lines = []
    with open(path, "rb") as file:  # noqa: PTH123 - pathlib would slow the start of the supervisor
        for line in file:
            if line.startswith(_COMMENT.encode()):
                lines.append(line[len(_COMMENT) :].decode("ascii", "replace"))
            elif lines:
                break  # the user's script may contain such lines, too
    if not lines:
        raise UsageError(f"{path} is no batch script of `slurm-plugin sbatch`; submit the script again")
    return read("".join(lines))._replace(batch_script=path)
