"""Find mistakes in a spec that the types of its keys do not catch."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from msgspec.structs import replace

from hostfiles import HostfileError, nodelist
from slurm_plugin.errors import UsageError
from slurm_plugin.launch import MODES, command, container, env_file, log_copy
from slurm_plugin.records import durations, progress_file, slow
from slurm_plugin.records.nearest import suggestion
from slurm_plugin.spec import documents, resources, sbatch_flags
from slurm_plugin.spec.documents import Problem
from slurm_plugin.spec.key_types import (
    ANNOTATED_RETRIES,
    ANNOTATED_UNCONDITIONAL,
    HOOKS,
    MAIL_TYPES,
    Performance,
    TensorFlow,
    joined,
)
from slurm_plugin.spec.record import Spec

# Why a job with a deadline is not requeued without a fault: Slurm ends a pending job whose whole limit no longer fits.
ANEW: Final = "a requeue begins the time limit anew, and the deadline may then end the job"
# Modes that accept both `launch: node` and `launch: task`.
TASK_LAUNCH: Final = ("openmpi", "mpich", "intelmpi", "pytorch", "deepspeed", "tensorflow")
_DATA_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)  # as key_types.Name
_HOOKS: Final = (".sh", ".py")
_READERS: Final[Mapping[str, Callable[[str], object]]] = {
    "time": durations.limit,
    "progress": progress_file.check,
    "queue_timeout": durations.wait,
    "grow": durations.seconds,
    "grace": durations.grace,
    "hang_timeout": durations.seconds,
    "hold_on_failure": durations.hold,
}
_TASKS_OWN = re.compile(r"%[0-9]*[aj]")

GROUPS: Final = "groups"
MOST_GROUPS: Final = 128  # MAX_HET_JOB_COMPONENTS (slurm.h of 26.05)
# The modes whose launch reaches every group. An `mpirun` starts an srun that reaches the first group only.
_REACH_ALL: Final = ("pytorch", "deepspeed", "tensorflow", "script")
# sbatch copies these options from the first group to groups that lack them (heterogeneous_jobs.shtml).
_HANDED_ON: Final = ("memory", "account", "qos", "exclude", "reservation")
_TOGETHER: Final = "restarts of such a job are not supported"
# Keys that are refused together with groups -> the reason, and what to do.
_NOT_WITH_GROUPS: Final[Mapping[str, str]] = {
    "nodes": "found it beside `groups`, each of which has its own; give it there",
    "min_nodes": "found it with `groups`; give each group the `nodes` that it needs",
    "spares": f"found it with `groups`: {_TOGETHER}; leave it out",
    "retries": f"found it with `groups`: {_TOGETHER}; leave it out, or write a job of nodes of one kind",
    "hang_timeout": f"found it with `groups`: {_TOGETHER}; leave it out",
    "unconditional": f"found it with `groups`: {_TOGETHER}; leave it out",
    "array": "found it with `groups`, and Slurm has no arrays of such jobs; submit one job for each task",
    "tasks": "found it with `groups`, and Slurm has no arrays of such jobs; submit one job for each command",
    "any_of": "found it with `groups`; submit one of the two",
    "prechecks": "found it with `groups`: its mpirun reaches the first group alone; leave it out",
}


def problems(spec: Spec, fields: Mapping[str, object], known: sbatch_flags.Known | None = None) -> Iterator[Problem]:
    """Yield the problems of a spec made of `fields`; `known` returns the flags of this machine's sbatch."""
    for place, line in _commands(spec):
        try:
            words = replace(spec, command=line).words
        except ValueError as error:
            yield Problem(place, f"found {error}")
        else:
            yield from _log_problems(spec, words)
            yield from _container_problems(spec, words)
    for key, read in _READERS.items():
        value = getattr(spec, key)
        try:
            _ = value is None or read(value)
        except ValueError as error:
            yield Problem((key,), f"found {documents.found(value)}; accepted: {error}")
    yield from _mode_problems(spec)
    if spec.any_of and spec.array:
        other = "tasks" if spec.tasks else "array"
        yield Problem(("any_of",), f"found it with `{other}`, all tasks of which run; leave one of the two out")
    yield from _task_problems(spec)
    yield from _recovery_problems(spec)
    yield from _group_problems(spec, fields)
    yield from _component_problems(spec)
    yield from sbatch_flags.problems(spec.sbatch, known)
    yield from _file_problems(spec)
    for name, value in spec.env.items():
        if text := env_file.wrong(name, value):
            yield Problem(("env", name), text)
    annotations = spec.metadata.annotations
    where = ("metadata", "annotations")
    if annotations.retries not in (None, spec.retries) and "retries" in fields:
        text = f"found {annotations.retries}, and `retries: {spec.retries}`; keep one of the two"
        yield Problem((*where, ANNOTATED_RETRIES), text)
    if annotations.unconditional == "true" and fields.get("unconditional") == "no":
        text = "found true, and `unconditional: no`; keep one of the two"
        yield Problem((*where, ANNOTATED_UNCONDITIONAL), text)


def _commands(spec: Spec) -> Iterator[tuple[documents.Path, str]]:
    """Yield the command, or each of `tasks`, with its place."""
    if not spec.tasks:
        yield ("command",), spec.command
    for number, line in enumerate(spec.tasks):
        yield ("tasks", str(number)), line


def _task_problems(spec: Spec) -> Iterator[Problem]:
    """Yield numbers in `array` for which there is no command in `tasks`."""
    if not spec.tasks or not spec.array:
        return
    numbers = [part.partition(":")[0].rpartition("-")[2] for part in spec.array.partition("%")[0].split(",")]
    if (last := max(map(int, numbers))) >= len(spec.tasks):
        text = f"found {last}, and {len(spec.tasks)} `tasks`; accepted: numbers from 0 to {len(spec.tasks) - 1}"
        yield Problem(("array",), text)


def _component_problems(spec: Spec) -> Iterator[Problem]:
    """Yield the problems in the resources of the job, or of each of its groups."""
    for number, part in enumerate(spec.components):
        own = spec.groups[number].own_keys if spec.groups else ()
        for each in _resource_problems(part):
            yield replace(each, path=(GROUPS, str(number), *each.path)) if each.path[0] in own else each


def _resource_problems(spec: Spec) -> Iterator[Problem]:
    """Yield problems in the values of resources, mail and logs."""
    for place, _, value in resources.options(spec):
        if place[0] != sbatch_flags.KEY and (found := sbatch_flags.unreadable(str(value or ""))):
            yield Problem(place, f"found {found} in it; accepted: {sbatch_flags.ACCEPTED}")
    if spec.accelerators.gpu and spec.accelerators.npu:
        yield Problem(("accelerators",), "found gpu and npu; accepted: one of the two")
    if spec.accelerators.type and not spec.accelerators.count:
        yield Problem(("accelerators", "type"), "found it without a number; give `gpu: N` or `npu: N` beside it")
    for key in ("nodelist", "exclude"):
        names = joined(getattr(spec, key))
        try:
            _ = names and nodelist.expand(names)
        except HostfileError as error:
            yield Problem((key,), f"found {error}; accepted: node names such as n[1-4],n9")
    for word in joined(spec.mail.type).split(",") if spec.mail else ():
        if word.strip().upper() not in MAIL_TYPES:
            close = suggestion(word.strip(), map(str.lower, MAIL_TYPES))
            accepted = f"accepted: {', '.join(MAIL_TYPES)}{close}"
            yield Problem(("mail", "type"), f"found {documents.found(word)}; {accepted}")
    for key, log in (("output", spec.output), ("error", spec.error)):
        if spec.array and log and not _TASKS_OWN.search(log):
            text = f"found {documents.found(log)} for an array; accepted: a name with %a or %j in it, as each task"
            yield Problem((key,), f"{text} has a log of its own")


def _file_problems(spec: Spec) -> Iterator[Problem]:
    """Yield hooks of an unknown kind, and names that SLURM_PLUGIN_DATA cannot have."""
    for key in HOOKS:
        for file in getattr(spec.hooks, key):
            if not file.endswith(_HOOKS):
                text = f"found {documents.found(file)}; accepted: a .sh, which bash runs, or a .py"
                yield Problem(("hooks", key), text)
    if spec.share and not spec.share.group and spec.share.access != "none":
        yield Problem(("share", "group"), "missing; give the group, one of: id -Gn")
    names = [each.name for each in spec.stage_in]
    for index, each in enumerate(spec.stage_in):
        if not _DATA_NAME.fullmatch(each.name):
            text = (
                f"found {documents.found(each.source)}, whose last part cannot be its name; give `to: NAME` beside it"
            )
            yield Problem(("stage_in", str(index)), text)
        elif each.name in names[:index]:
            yield Problem(("stage_in", str(index)), f"found the name {each.name!r} twice; give `to: NAME` beside it")


def _recovery_problems(spec: Spec) -> Iterator[Problem]:
    """Yield keys that do not fit the number of nodes or restarts."""
    if spec.min_nodes is not None and spec.min_nodes > spec.nodes:
        yield Problem(("min_nodes",), f"found {spec.min_nodes}; accepted: 1 to {spec.nodes}, the `nodes` of this job")
    retries = spec.metadata.annotations.retries or spec.retries
    if spec.grow:
        yield from (Problem(("grow",), text) for text in _no_growth(spec, retries))
    if spec.grace and durations.unlimited(spec.time or ""):
        text = f"found it with `time: {spec.time}`; its signal comes before the time limit: leave one of the two out"
        yield Problem(("grace",), text)
    if retries and spec.open_mode == "truncate":
        text = "found truncate with restarts, each of which would delete the earlier log; accepted: append"
        yield Problem(("open_mode",), text)
    if not retries:
        wanted = {"unconditional": spec.unconditionally, "spares": spec.spares, "hang_timeout": spec.hang_timeout}
        for key in (key for key, value in wanted.items() if value):
            yield Problem((key,), "found it without restarts; give `retries: 1` or more, or leave it out")
    if spec.performance:
        yield from _performance_problems(spec.performance, retries, deadline=bool(spec.deadline))


def _performance_problems(performance: Performance, retries: int, *, deadline: bool) -> Iterator[Problem]:
    where = "performance"
    if performance.action == slow.ACTIONS[1] and not retries:
        text = "found reschedule without restarts; give `retries: 1` or more, or `action: alert`"
        yield Problem((where, "action"), text)
    if performance.action == slow.ACTIONS[1] and deadline:
        yield Problem((where, "action"), f"found reschedule with `deadline`: {ANEW}; write `action: alert`")
    try:
        slow.check(performance.pattern or slow.EXAMPLE)
    except ValueError as error:
        yield Problem((where, "pattern"), f"found {documents.found(performance.pattern)}; accepted: {error}")


def _no_growth(spec: Spec, retries: int) -> Iterator[str]:
    """Yield why a job cannot grow."""
    if spec.search:
        yield "found it with `search`, whose trials have a fixed size; leave one of the two out"
    if spec.deadline:
        yield f"found it with `deadline`: {ANEW}; leave one of the two out"
    needs = {
        "nodes: 4-8": spec.least < spec.nodes,
        "checkpoint: DIRECTORY": spec.checkpoint,
        "grace: TIME": spec.grace,
        "retries: 1": retries,
    }
    if lacking := ", ".join(f"`{words}`" for words, there in needs.items() if not there):
        yield f"found it without {lacking}; give it also, or leave `grow` out"


def _log_problems(spec: Spec, words: tuple[str, ...]) -> Iterator[Problem]:
    """Yield log files and labels of processes that slurm_plugin does not start."""
    logs, labelled = spec.shape.logs, spec.logs.label == "yes"
    if logs is None and not labelled:
        return
    launch = MODES[spec.mode].launch(words, spec.shape)
    by_task = " write `launch: task`, or" if spec.mode in TASK_LAUNCH and spec.launch != "task" else ""
    if labelled and not launch.plugin_step(words):
        text = f"found yes where no srun of ours starts the tasks, which would label their lines;{by_task} leave it out"
        yield Problem(("logs", "label"), text)
    if logs and spec.mode == "script":
        text = "found it in mode script, which starts its processes itself; leave it out; in the script:"
        yield Problem(("logs", "per"), f"{text} srun --output=%x-%j-worker-%n.log")
    elif logs and (lacking := log_copy.lacks(logs, launch.argv)):
        text = f"found {logs.per} and a command that starts its processes itself, which {lacking} writes a line is not"
        alone = f"write the program alone, which mode {spec.mode} starts, or use an option of its own launcher"
        yield Problem(("logs", "per"), f"{text} known;{by_task} {alone}")


def _container_problems(spec: Spec, words: tuple[str, ...]) -> Iterator[Problem]:
    """Yield values that no runtime accepts, and launches that cannot start the container."""
    said = spec.container
    if said is None:
        return
    for key, paths in {"image": (said.image,), "mounts": said.mounts, "workdir": (said.workdir or "",)}.items():
        if each := next(filter(container.unexpanded, paths), ""):
            text = f"found {documents.found(each)}, and nothing expands `$` or `~` in it; accepted: the whole path"
            yield Problem(("container", key), text)
    for index, mount in enumerate(said.mounts):
        if wrong := container.mount_problem(mount, said.runtime or ""):
            yield Problem(("container", "mounts", str(index)), f"found {documents.found(mount)}; {wrong}")
    if said.workdir is not None and not container.is_path(said.workdir):
        yield Problem(("container", "workdir"), f"found {documents.found(said.workdir)}; accepted: an absolute path")
    fit = container.fits(said.image)
    if not said.runtime:
        text = f"missing, as {documents.found(said.image)} fits both runtimes, and the site file names none"
        yield Problem(("container", "runtime"), f"{text}; accepted: {', '.join(container.RUNTIMES)}")
    elif fit not in ("", said.runtime):
        text = f"found {said.runtime}, and the image {documents.found(said.image)}, which only {fit} can start"
        yield Problem(("container", "runtime"), f"{text}; accepted: {fit}, or another image")
    elif spec.contained:
        yield from _launch_problems(spec, spec.contained, words)


def _launch_problems(spec: Spec, inside: container.Container, words: tuple[str, ...]) -> Iterator[Problem]:
    if spec.mode == "script" and spec.nodes > 1:
        text = "found it in mode script on several nodes, where the script starts the steps; leave it out, and write:"
        yield Problem(
            ("container",), f"{text} srun apptainer exec IMAGE PROGRAM, or srun --container-image=IMAGE PROGRAM"
        )
        return
    try:
        argv = MODES[spec.mode].launch(words, spec.shape).argv
    except UsageError:  # a mistake in the command: the launch reports it
        return
    if inside.has(argv):
        return
    if command.names_launcher(words) or argv[0] == words[0]:
        text = "the command starts its processes itself, and in a container it cannot reach other nodes; write the"
        yield Problem(("container",), f"{text} program alone, which mode {spec.mode} starts on each of them")
        return
    other = "write `launch: task`" if spec.mode in TASK_LAUNCH else f"give it an image of {container.APPTAINER}'s"
    text = f"found runtime {inside.runtime}, which needs srun, and mode {spec.mode} starts with {argv[0]}"
    yield Problem(("container", "runtime"), f"{text}; {other}")


def _mode_problems(spec: Spec) -> Iterator[Problem]:
    """Yield keys that do not fit the mode."""
    if spec.mode == "single" and spec.nodes > 1:
        others = ", ".join(name for name in MODES if name != "single")
        yield Problem(("nodes",), f"found {spec.nodes}; mode single accepts: 1; modes with more: {others}")
    if spec.launch == "task" and spec.mode not in TASK_LAUNCH:
        accepted = f"mode {spec.mode} accepts: node; modes {', '.join(TASK_LAUNCH)}: node, task"
        yield Problem(("launch",), f"found 'task'; {accepted}")
    for key in ("tensorflow", "ascend"):
        if getattr(spec, key) is not None and spec.mode != key:
            yield Problem((key,), f"found it in mode {spec.mode}; only mode {key} accepts it")
    if spec.mode != "tensorflow":
        return
    members = spec.tensorflow or TensorFlow()
    no_workers = (members.chief == "yes") + (members.evaluator == "yes")
    if spec.groups:
        tasks = sum(each.nodes * (each.slots if spec.launch == "task" else 1) for each in spec.components)
        no_workers += members.ps
    else:
        tasks = spec.least * (spec.slots if spec.launch == "task" else 1)
    if no_workers >= tasks:
        of = "servers, chief and evaluator" if spec.groups else "chief and evaluator"
        yield Problem(
            ("tensorflow",),
            f"found {no_workers} {of} in {tasks} task(s); accepted: fewer, as one task must be a worker",
        )


def _group_problems(spec: Spec, fields: Mapping[str, object]) -> Iterator[Problem]:
    """Yield the problems in the groups of a spec made of `fields`."""
    if GROUPS not in fields:
        return
    if not 2 <= len(spec.groups) <= MOST_GROUPS:
        accepted = f"a list of 2 to {MOST_GROUPS} mappings, each with its own `nodes`"
        yield Problem((GROUPS,), f"found {len(spec.groups)} of them; accepted: {accepted}")
    if spec.mode not in _REACH_ALL:
        yield Problem((GROUPS,), f"found it in mode {spec.mode}; modes that reach all groups: {', '.join(_REACH_ALL)}")
    said = {key for key in _NOT_WITH_GROUPS if fields.get(key) not in (None, "null", "0", "no", [], ())}
    if spec.retries or spec.metadata.annotations.retries:
        said.add("retries")
    yield from (Problem((key,), why) for key, why in _NOT_WITH_GROUPS.items() if key in said)
    if "distribution" in spec.sbatch:
        yield Problem(
            (sbatch_flags.KEY, "distribution"), "found it with `groups`: ranks go over the nodes in order; leave it out"
        )
    for key in _HANDED_ON:
        has = [getattr(each, key) is not None for each in spec.groups]
        if getattr(spec, key) is None and has and has[0] and not all(has):
            text = "found it in the first group and not in all, and sbatch gives it to the others too"
            yield Problem((GROUPS, "0", key), f"{text}; give it to every group, or to the job")
