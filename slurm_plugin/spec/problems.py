"""What is wrong with a spec beyond the type of each key."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from msgspec.structs import replace

from hostfiles import HostfileError, nodelist
from slurm_plugin import container, directive, durations, envfile, yamltext
from slurm_plugin.errors import UsageError
from slurm_plugin.modes import MODES, command
from slurm_plugin.nearest import suggestion
from slurm_plugin.spec import groups, passed, resources
from slurm_plugin.spec.kinds import MAIL_TYPES, joined
from slurm_plugin.spec.parts import ANNOTATED_RETRIES, ANNOTATED_UNCONDITIONAL, TensorFlow
from slurm_plugin.spec.record import Spec
from slurm_plugin.validate import Problem

# modes with both launches
TASK_LAUNCH: Final = ("openmpi", "mpich", "intelmpi", "pytorch", "deepspeed", "tensorflow")

USR1: Final = "SIGUSR1"  # with which a program is told to save
TORCH_SIGNALS: Final = "PET_SIGNALS_TO_HANDLE"  # torch.distributed.run's option --signals-to-handle, as a variable

_DATA_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)  # as kinds.Name
_HOOKS: Final = (".sh", ".py")
_TASKS_OWN = re.compile(r"%[0-9]*[aj]")


def problems(spec: Spec, fields: Mapping[str, object], known: passed.Known | None = None) -> Iterator[Problem]:
    """What is wrong with a spec made of `fields`; `known` tells which flags the sbatch of this machine has."""
    try:
        words = spec.words
    except ValueError as error:
        yield Problem(("command",), f"found {error}")
    else:
        yield from _grace_problems(spec, words)
        yield from _log_problems(spec, words)
        yield from _container_problems(spec, words)
    for key in ("time", "grace", "hang_timeout", "hold_on_failure"):
        value = getattr(spec, key)
        try:
            _ = value is None or durations.seconds(value)
        except ValueError as error:
            yield Problem((key,), f"found {yamltext.found(value)}; accepted: {error}")
    if spec.queue_timeout is not None:
        try:
            durations.wait(spec.queue_timeout)
        except ValueError as error:
            yield Problem(("queue_timeout",), f"found {yamltext.found(spec.queue_timeout)}; accepted: {error}")
    yield from _mode_problems(spec)
    if spec.any_of and spec.array:
        yield Problem(("any_of",), "found it with `array`, each task of which runs; leave one of the two out")
    yield from _recovery_problems(spec)
    yield from groups.problems(spec, fields)
    yield from _component_problems(spec)
    yield from passed.problems(spec.sbatch, known)
    yield from _file_problems(spec)
    for name, value in spec.env.items():
        if text := envfile.wrong(name, value):
            yield Problem(("env", name), text)
    annotations = spec.metadata.annotations
    where = ("metadata", "annotations")
    if annotations.retries not in (None, spec.retries) and "retries" in fields:
        text = f"found {annotations.retries}, and `retries: {spec.retries}`; keep one of the two"
        yield Problem((*where, ANNOTATED_RETRIES), text)
    if annotations.unconditional == "true" and fields.get("unconditional") == "no":
        text = "found true, and `unconditional: no`; keep one of the two"
        yield Problem((*where, ANNOTATED_UNCONDITIONAL), text)


def _component_problems(spec: Spec) -> Iterator[Problem]:
    """What is wrong with the resources of the job, or of each of its groups."""
    for number, part in enumerate(spec.components):
        own = spec.groups[number].said if spec.groups else ()
        for each in _resource_problems(part):
            yield replace(each, path=(groups.KEY, str(number), *each.path)) if each.path[0] in own else each


def _resource_problems(spec: Spec) -> Iterator[Problem]:
    """What sbatch could not read from a script, or would read otherwise than it was meant."""
    for place, _, value in resources.asked(spec):
        if place[0] != passed.KEY and (found := directive.unreadable(str(value or ""))):
            yield Problem(place, f"found {found} in it; accepted: {directive.ACCEPTED}")
    if spec.accelerators.gpu and spec.accelerators.npu:
        yield Problem(("accelerators",), "found gpu and npu; accepted: one kind, as each has its slots")
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
            yield Problem(("mail", "type"), f"found {yamltext.found(word)}; {accepted}")
    for key, log in (("output", spec.output), ("error", spec.error)):
        if spec.array and log and not _TASKS_OWN.search(log):
            text = f"found {yamltext.found(log)} for an array; accepted: a name with %a or %j in it, as each task"
            yield Problem((key,), f"{text} has a log of its own")


def _file_problems(spec: Spec) -> Iterator[Problem]:
    """Names in SLURM_PLUGIN_DATA: each is a name, and there once. Hooks: each says what runs it."""
    for key in ("before", "after"):
        for file in getattr(spec.hooks, key):
            if not file.endswith(_HOOKS):
                text = f"found {yamltext.found(file)}; accepted: a .sh, which bash runs, or a .py"
                yield Problem(("hooks", key), text)
    names = [each.name for each in spec.stage_in]
    for index, each in enumerate(spec.stage_in):
        if not _DATA_NAME.fullmatch(each.name):
            text = f"found {yamltext.found(each.source)}, whose last part is no name for it; give `to: NAME` beside it"
            yield Problem(("stage_in", str(index)), text)
        elif each.name in names[:index]:
            yield Problem(("stage_in", str(index)), f"found the name {each.name!r} twice; give `to: NAME` beside it")


def _recovery_problems(spec: Spec) -> Iterator[Problem]:
    """What does not go with the number of nodes and restarts."""
    if spec.min_nodes is not None and spec.min_nodes > spec.nodes:
        yield Problem(("min_nodes",), f"found {spec.min_nodes}; accepted: 1 to {spec.nodes}, the `nodes` of this job")
    retries = spec.metadata.annotations.retries or spec.retries
    if retries and spec.open_mode == "truncate":
        text = "found truncate with restarts, each of which would lose the log before it; accepted: append"
        yield Problem(("open_mode",), text)
    if not retries:
        wanted = {"unconditional": spec.unconditionally, "spares": spec.spares, "hang_timeout": spec.hang_timeout}
        for key in (key for key, value in wanted.items() if value):
            yield Problem((key,), "found it without restarts; give `retries: 1` or more, or leave it out")


def _grace_problems(spec: Spec, words: tuple[str, ...]) -> Iterator[Problem]:
    """A launcher that SIGUSR1 ends, and the program with it. It may have been told to hand that on: torch 2.13 can."""
    launcher = MODES[spec.mode].ended_by_usr1(words, spec.shape) if spec.grace else ""
    if launcher and not any(USR1 in text for text in (*words, spec.env.get(TORCH_SIGNALS, ""))):
        text = f"found it with {launcher}, which {USR1} ends before the program can save"
        bare = f" and the command without {launcher}" if launcher in map(command.name, words) else ""
        yield Problem(("grace",), f"{text}; write `launch: task`{bare}, or leave it out")


def _log_problems(spec: Spec, words: tuple[str, ...]) -> Iterator[Problem]:
    """Logs of tasks: only an srun of ours can write them, and a rank's only where each rank is a task."""
    if not spec.logs.apart and spec.logs.label == "no":
        return
    argv = MODES[spec.mode].launch(words, spec.shape).argv
    if argv == words or argv[0] != "srun":
        both = "; write `launch: task`, or leave it out" if spec.mode in TASK_LAUNCH and argv != words else ""
        text = f"found it where no srun of ours starts the tasks, so that nobody can part their lines{both}"
        yield Problem(("logs",), text)
    elif spec.logs.per == "rank" and f"--ntasks-per-node={spec.slots}" not in argv:
        text = f"found rank where one task a node starts {spec.slots} of them; write `per: node`, or `launch: task`"
        yield Problem(("logs", "per"), text)


def _container_problems(spec: Spec, words: tuple[str, ...]) -> Iterator[Problem]:
    """What no runtime could be told, and launches that do not start the program in the container."""
    said = spec.container
    if said is None:
        return
    for index, mount in enumerate(said.mounts):
        if wrong := container.mount_problem(mount):
            yield Problem(("container", "mounts", str(index)), f"found {yamltext.found(mount)}; {wrong}")
    if said.workdir is not None and not container.plain(said.workdir):
        yield Problem(("container", "workdir"), f"found {yamltext.found(said.workdir)}; accepted: an absolute path")
    fit = container.fits(said.image)
    if not said.runtime:
        text = f"missing, as {yamltext.found(said.image)} fits both and the site names none"
        yield Problem(("container", "runtime"), f"{text}; accepted: {', '.join(container.RUNTIMES)}")
    elif fit not in ("", said.runtime):
        text = f"found {said.runtime}, and the image {yamltext.found(said.image)}, which is {fit}'s"
        yield Problem(("container", "runtime"), f"{text}; accepted: {fit}, or another image")
    elif spec.contained:
        yield from _launch_problems(spec, spec.contained, words)


def _launch_problems(spec: Spec, inside: container.Container, words: tuple[str, ...]) -> Iterator[Problem]:
    if spec.mode == "script" and spec.nodes > 1:
        text = "found it in mode script on several nodes, whose steps are the script's own; leave it out; there:"
        yield Problem(
            ("container",), f"{text} srun apptainer exec IMAGE PROGRAM, or srun --container-image=IMAGE PROGRAM"
        )
        return
    try:
        argv = MODES[spec.mode].launch(words, spec.shape).argv
    except UsageError:  # of the command: told where it is launched
        return
    if inside.has(argv):
        return
    if command.names(words, command.MPI_LAUNCHERS) or argv[0] == words[0]:
        text = "the command starts its processes itself, and in a container it cannot reach other nodes; write the"
        yield Problem(("container",), f"{text} program alone, which mode {spec.mode} starts on each of them")
        return
    other = "write `launch: task`" if spec.mode in TASK_LAUNCH else f"give it an image of {container.APPTAINER}'s"
    text = f"found runtime {inside.runtime}, which needs srun, and mode {spec.mode} starts with {argv[0]}"
    yield Problem(("container", "runtime"), f"{text}; {other}")


def _mode_problems(spec: Spec) -> Iterator[Problem]:
    """What does not go with the mode."""
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
    if spec.groups:
        tasks = sum(each.nodes * (each.slots if spec.launch == "task" else 1) for each in spec.components)
    else:
        tasks = spec.least * (spec.slots if spec.launch == "task" else 1)
    no_workers = members.ps + (members.chief == "yes") + (members.evaluator == "yes")
    if no_workers >= tasks:
        text = f"found {no_workers} servers, chief and evaluator in {tasks} task(s); accepted: fewer, one is a worker"
        yield Problem(("tensorflow",), text)
