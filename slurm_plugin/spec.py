"""The job spec: what a user writes in `JOB.yaml`. docs/spec.md says the same to users."""

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct

from slurm_plugin import commandline, durations, validate, yamltext
from slurm_plugin.errors import UsageError
from slurm_plugin.modes import MODES, Options, Shape, command
from slurm_plugin.modes.ascend import MESSAGES
from slurm_plugin.token import MAX_RETRIES
from slurm_plugin.validate import Problem

if TYPE_CHECKING:
    ModeName: TypeAlias = str
    Messages: TypeAlias = str
else:
    ModeName, Messages = Literal[tuple(MODES)], Literal[MESSAGES]
YesNo = Literal["yes", "no"]

ANNOTATED_RETRIES: Final = "fault-tolerance/job-retry-num"
ANNOTATED_UNCONDITIONAL: Final = "fault-tolerance/job-unconditional-retry"

# modes with both launches
TASK_LAUNCH: Final = ("openmpi", "mpich", "intelmpi", "pytorch", "deepspeed", "tensorflow")

USR1: Final = "SIGUSR1"  # with which a program is told to save
TORCH_SIGNALS: Final = "PET_SIGNALS_TO_HANDLE"  # torch.distributed.run's option --signals-to-handle, as a variable

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_NOT_IN_ENV = re.compile(r"[\0\ud800-\udfff]")
# bash ends a script that assigns to one of these.
_READ_ONLY: Final = frozenset({"BASHOPTS", "BASH_VERSINFO", "EUID", "PPID", "SHELLOPTS", "UID"})

# What becomes a value of an #SBATCH line. sbatch's own reader drops backslashes, ends a value at a quote and begins a
# new directive at a newline; nothing expands `$` or `~` there.
_NOT_IN_A_DIRECTIVE: Final = r"\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\\\"$"
Count = Annotated[int, Meta(ge=0, le=1024, description="a whole number from 0 to 1024")]
Nodes = Annotated[int, Meta(ge=1, le=65536, description="a whole number from 1 to 65536")]
Retries = Annotated[int, Meta(ge=0, le=MAX_RETRIES, description=f"a whole number from 0 to {MAX_RETRIES}")]
Name = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z",
        description="a name of up to 64 letters, digits, `.`, `_` and `-`, the first a letter or digit",
    ),
]
Command = Annotated[str, Meta(min_length=1, max_length=65536, description="a command that begins with an executable")]
# `%` in the working directory would be read as a pattern of the log's name, which sbatch puts behind it.
Directory = Annotated[
    str,
    Meta(
        pattern=rf"^(?!~)[^%{_NOT_IN_A_DIRECTIVE}]+\Z",
        max_length=1024,
        description="a path without control characters, backslashes, double quotes, `$`, `%` or a leading `~`",
    ),
]
FilePath = Annotated[
    str,
    Meta(
        pattern=rf"^(?!~)[^{_NOT_IN_A_DIRECTIVE}]+\Z",
        max_length=1024,
        description="a path without control characters, backslashes, double quotes, `$` or a leading `~`",
    ),
]


class _Part(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A part of a spec."""


class Accelerators(_Part, frozen=True):
    """Accelerators of each node, by Slurm's gres name: of one kind."""

    gpu: Count = 0
    npu: Count = 0

    @property
    def kind(self) -> str:
        """The gres name of those that there are; empty without any."""
        return next((name for name in self.__struct_fields__ if getattr(self, name)), "")

    @property
    def count(self) -> int:
        """How many a node has."""
        return self.gpu or self.npu


class TensorFlow(_Part, frozen=True):
    """Which tasks of mode `tensorflow` are no workers."""

    ps: Count = 0
    chief: YesNo = "no"
    evaluator: YesNo = "no"


class Ascend(_Part, frozen=True):
    """How processes of mode `ascend` find each other, and how much they tell."""

    table: YesNo = "yes"
    messages: Messages = "normal"


class Annotations(_Part, frozen=True, rename={"retries": ANNOTATED_RETRIES, "unconditional": ANNOTATED_UNCONDITIONAL}):
    """Annotations of other training systems, accepted as they are."""

    retries: Retries | None = None
    unconditional: Literal["true", "false"] = "false"


class Metadata(_Part, frozen=True):
    """The place of the annotations."""

    annotations: Annotations = Annotations()


class Spec(_Part, frozen=True, kw_only=True):
    """One job."""

    name: Name
    mode: ModeName
    nodes: Nodes = 1
    accelerators: Accelerators = Accelerators()
    command: Command
    env: Mapping[str, str] = {}
    workdir: Directory | None = None
    time: str | None = None
    output: FilePath = "%x-%j.out"
    checkpoint: FilePath | None = None
    retries: Retries = 0
    queue_timeout: str | None = None
    unconditional: YesNo = "no"
    spares: Count = 0
    min_nodes: Nodes | None = None
    grace: str | None = None
    hang_timeout: str | None = None
    hold_on_failure: str | None = None
    infiniband: Literal["auto", "yes", "no"] = "auto"
    launch: Literal["node", "task"] = "node"
    tensorflow: TensorFlow | None = None
    ascend: Ascend | None = None
    prechecks: tuple[Literal["fabric"], ...] = ()
    metadata: Metadata = Metadata()

    @property
    def slots(self) -> int:
        """Processes that a node has room for: its accelerators, 1 without any (row C1)."""
        return self.accelerators.count or 1

    @property
    def queue_timeout_s(self) -> int | None:
        """How long it may wait after a requeue of ours, in seconds; 0: for any time, None: as the site says."""
        return None if self.queue_timeout is None else durations.wait(self.queue_timeout)

    @property
    def unconditionally(self) -> bool:
        """Whether any failure restarts it (row B4)."""
        return self.unconditional == "yes" or self.metadata.annotations.unconditional == "true"

    @property
    def outlives_nodes(self) -> bool:
        """Whether Slurm is to keep the job when a node of it is lost: it can go on on the others."""
        return self.retries > 0 and (self.spares > 0 or self.least < self.nodes)

    @property
    def least(self) -> int:
        """How few nodes the program can do with."""
        return self.nodes if self.min_nodes is None else self.min_nodes

    @property
    def words(self) -> tuple[str, ...]:
        """The command's words; mode `script` is bash's to read (row C6). Raises ValueError for a wrong command."""
        if self.mode == "script":
            if commandline.NOT_IN_A_WORD.search(self.command):
                raise ValueError(commandline.NO_ARGUMENT)
            return ("bash", "-c", self.command)
        return commandline.split(self.command)

    @property
    def shape(self) -> Shape:
        """What its launch depends on."""
        parts, cards = self.tensorflow or TensorFlow(), self.ascend or Ascend()
        options = Options(
            ps=parts.ps,
            chief=parts.chief == "yes",
            evaluator=parts.evaluator == "yes",
            table=cards.table == "yes",
            messages=cards.messages,
        )
        return Shape(self.nodes, self.slots, self.launch, env=frozenset(self.env), options=options)


def load(data: bytes, source: str) -> Spec:
    """Read a spec; `source` names it in messages. Raises UsageError with all of its problems."""
    document = yamltext.read(data, source)
    spec, problems = validate.record(document, Spec)
    then = {"so": "nothing was submitted", "again": f"slurm-plugin render {source}"}
    validate.fail(problems, document, source, **then)
    if spec is None:  # fail() has raised
        raise UsageError(f"{source}: not a job spec")
    validate.fail(_problems(spec, document.fields), document, source, **then)
    retries = spec.metadata.annotations.retries
    return spec if retries is None else msgspec.structs.replace(spec, retries=retries)


def _problems(spec: Spec, fields: Mapping[str, object]) -> Iterator[Problem]:
    """What is wrong with a spec beyond the type of each field."""
    try:
        words = spec.words
    except ValueError as error:
        yield Problem(("command",), f"found {error}")
    else:
        yield from _grace_problems(spec, words)
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
    yield from _recovery_problems(spec)
    for name, value in spec.env.items():
        yield from _env_problems(name, value)
    annotations = spec.metadata.annotations
    where = ("metadata", "annotations")
    if annotations.retries not in (None, spec.retries) and "retries" in fields:
        text = f"found {annotations.retries}, and `retries: {spec.retries}`; keep one of the two"
        yield Problem((*where, ANNOTATED_RETRIES), text)
    if annotations.unconditional == "true" and fields.get("unconditional") == "no":
        text = "found true, and `unconditional: no`; keep one of the two"
        yield Problem((*where, ANNOTATED_UNCONDITIONAL), text)


def _recovery_problems(spec: Spec) -> Iterator[Problem]:
    """What does not go with the number of nodes and restarts."""
    if spec.min_nodes is not None and spec.min_nodes > spec.nodes:
        yield Problem(("min_nodes",), f"found {spec.min_nodes}; accepted: 1 to {spec.nodes}, the `nodes` of this job")
    retries = spec.metadata.annotations.retries or spec.retries
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
    if spec.accelerators.gpu and spec.accelerators.npu:
        yield Problem(("accelerators",), "found gpu and npu; accepted: one kind, as each has its slots")
    if spec.mode != "tensorflow":
        return
    members = spec.tensorflow or TensorFlow()
    tasks = spec.least * (spec.slots if spec.launch == "task" else 1)
    no_workers = members.ps + (members.chief == "yes") + (members.evaluator == "yes")
    if no_workers >= tasks:
        text = f"found {no_workers} servers, chief and evaluator in {tasks} task(s); accepted: fewer, one is a worker"
        yield Problem(("tensorflow",), text)


def _env_problems(name: str, value: str) -> Iterator[Problem]:
    path = ("env", name)
    if not _ENV_NAME.fullmatch(name):
        yield Problem(path, "accepted names: letters, digits and `_`, the first not a digit")
    elif name.startswith("SLURM_"):
        yield Problem(path, "SLURM_ names are Slurm's and ours; choose another name")
    elif name in _READ_ONLY:
        yield Problem(path, "bash does not let a script set it; choose another name")
    if _NOT_IN_ENV.search(value):
        yield Problem(path, "the value has a NUL or half a surrogate pair in it; no variable can hold that")
