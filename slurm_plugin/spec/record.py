"""The record of a spec: its keys, in the order in which docs/spec.md has them, and what follows from them."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias

from msgspec import Meta, structs

from slurm_plugin import commandline, durations
from slurm_plugin.container import Container as Contained
from slurm_plugin.modes import Group as GroupShape
from slurm_plugin.modes import Options, Shape
from slurm_plugin.spec import othernames
from slurm_plugin.spec.kinds import (
    Array,
    Command,
    Constraint,
    Count,
    Cpus,
    Dependency,
    Directory,
    Exclusive,
    Fewest,
    FilePath,
    FilePaths,
    HostList,
    Licenses,
    Memory,
    ModeName,
    Modules,
    Moment,
    Name,
    Nice,
    Nodes,
    Retries,
    Word,
    Words,
    YesNo,
)
from slurm_plugin.spec.parts import (
    Accelerators,
    Ascend,
    Container,
    Group,
    Hooks,
    Logs,
    Mail,
    Metadata,
    Part,
    StageIn,
    TensorFlow,
)

ARRAY_OUTPUT: Final = "%x-%A_%a.out"  # in place of the default where there are many tasks
Flags: TypeAlias = Annotated[
    Mapping[str, str],
    Meta(description="a mapping of `flag: value` lines, such as `switches: 1`; `yes` for a flag without a value"),
]

Alternatives: TypeAlias = Annotated[
    tuple[Mapping[str, Any], ...],
    Meta(description="a list of mappings, each with the keys in which it differs, such as `- {nodes: 4}`"),
]


class Spec(Part, frozen=True, kw_only=True):
    """One job."""

    name: Name
    extends: Name | None = None
    mode: ModeName
    nodes: Nodes = 1
    accelerators: Accelerators = Accelerators()
    groups: tuple[Group, ...] = ()
    cpus: Cpus | None = None
    memory: Memory | None = None
    time: str | None = None
    partition: Words | None = None
    account: Word | None = None
    qos: Words | None = None
    constraint: Constraint | None = None
    nodelist: HostList | None = None
    exclude: HostList | None = None
    reservation: Words | None = None
    licenses: Licenses | None = None
    exclusive: Exclusive = "no"
    array: Array | None = None
    dependency: Dependency | None = None
    begin: Moment | None = None
    deadline: Moment | None = None
    nice: Nice | None = None
    mail: Mail | None = None
    sbatch: Flags = {}  # noqa: RUF012 - msgspec copies it
    command: Command
    env: Mapping[str, str] = {}
    env_file: FilePaths = ()
    modules: Modules = ()
    stage_in: tuple[StageIn, ...] = ()
    hooks: Hooks = Hooks()
    container: Container | None = None
    workdir: Directory | None = None
    output: FilePath = "%x-%j.out"
    error: FilePath | None = None
    open_mode: Literal["append", "truncate"] = "append"
    logs: Logs = Logs()
    checkpoint: FilePath | None = None
    retries: Retries = 0
    queue_timeout: str | None = None
    unconditional: YesNo = "no"
    spares: Count = 0
    min_nodes: Fewest | None = None
    grace: str | None = None
    hang_timeout: str | None = None
    hold_on_failure: str | None = None
    infiniband: Literal["auto", "yes", "no"] = "auto"
    launch: Literal["node", "task"] = "node"
    tensorflow: TensorFlow | None = None
    ascend: Ascend | None = None
    prechecks: tuple[Literal["fabric"], ...] = ()
    metadata: Metadata = Metadata()
    any_of: Alternatives = ()

    @staticmethod
    def meant(key: str) -> str:
        """What to write in place of a key that there is not; empty where that cannot be known."""
        return othernames.meant(key)

    @property
    def components(self) -> tuple["Spec", ...]:
        """Each of its groups as a job of its own; itself without groups."""
        return tuple(structs.replace(self, groups=(), **each.said) for each in self.groups) or (self,)

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
        groups = tuple(GroupShape(each.nodes, each.slots, each.cpus) for each in self.components)
        return Shape(
            nodes=sum(each.nodes for each in groups),
            slots=groups[0].slots,
            launch=self.launch,
            env=frozenset(self.env),
            options=options,
            groups=groups if self.groups else (),
            container=self.contained,
        )

    @property
    def contained(self) -> Contained | None:
        """What it runs in, before the directory is known; None where it runs on the node itself, as the node is."""
        said = self.container
        if said is None or said.runtime is None:
            return None
        gpus = self.accelerators.gpu or any(each.accelerators and each.accelerators.gpu for each in self.groups)
        return Contained(
            said.image,
            said.runtime,
            said.mounts,
            said.workdir or "",
            writable=said.writable == "yes",
            home=said.home == "yes",
            gpu="nv" if gpus else "",
            env=tuple(self.env),
        )
