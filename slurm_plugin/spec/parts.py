"""The parts of a spec that have keys of their own."""

from pathlib import PurePosixPath
from typing import Any, Final, Literal

from msgspec import Struct, structs

from slurm_plugin.spec.kinds import (
    Constraint,
    Count,
    Cpus,
    Directory,
    Exclusive,
    Fewest,
    FilePath,
    FilePaths,
    HostList,
    Image,
    Licenses,
    MailTypes,
    Memory,
    Messages,
    Mounts,
    Name,
    Retries,
    Runtime,
    Word,
    Words,
    YesNo,
)

ANNOTATED_RETRIES: Final = "fault-tolerance/job-retry-num"
ANNOTATED_UNCONDITIONAL: Final = "fault-tolerance/job-unconditional-retry"
KINDS: Final = ("gpu", "npu")  # of accelerators


class Part(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A part of a spec."""


class Accelerators(Part, frozen=True):
    """Accelerators of each node, by Slurm's gres name: of one kind, and of one type where it is given."""

    gpu: Count = 0
    npu: Count = 0
    type: Word | None = None

    @property
    def kind(self) -> str:
        """The gres name of those that there are; empty without any."""
        return next((name for name in KINDS if getattr(self, name)), "")

    @property
    def count(self) -> int:
        """How many a node has."""
        return self.gpu or self.npu

    @property
    def gres(self) -> str:
        """As --gres has them: `gpu:a100:8`; empty without any."""
        return ":".join(filter(None, (self.kind, self.type, str(self.count)))) if self.count else ""


class StageIn(Part, frozen=True, rename={"source": "from"}):
    """Data that each node is to have on its own disk."""

    source: FilePath
    to: Name | None = None

    @property
    def name(self) -> str:
        """Its name in SLURM_PLUGIN_DATA."""
        return self.to or PurePosixPath(self.source).name


class Hooks(Part, frozen=True):
    """Files that are run once on each node, besides those that stand beside the program."""

    before: FilePaths = ()
    after: FilePaths = ()
    found: YesNo = "yes"


class Logs(Part, frozen=True):
    """Logs of the program's tasks, where an srun of ours starts them."""

    per: Literal["job", "node", "rank"] = "job"
    directory: Directory = "logs"
    label: YesNo = "no"

    @property
    def apart(self) -> bool:
        """Whether a task's output goes anywhere but into the job's log."""
        return self.per != "job"


class Group(Part, frozen=True):
    """One group of nodes of a heterogeneous job. What it does not say is as the job's own keys have it."""

    nodes: Fewest = 1
    accelerators: Accelerators | None = None
    cpus: Cpus | None = None
    memory: Memory | None = None
    partition: Words | None = None
    account: Word | None = None
    qos: Words | None = None
    constraint: Constraint | None = None
    nodelist: HostList | None = None
    exclude: HostList | None = None
    reservation: Words | None = None
    licenses: Licenses | None = None
    exclusive: Exclusive | None = None

    @property
    def said(self) -> dict[str, Any]:
        """What it says itself."""
        return {name: value for name, value in structs.asdict(self).items() if value is not None}


class Mail(Part, frozen=True, kw_only=True):
    """Who is told by mail, of what."""

    user: Word | None = None
    type: MailTypes


class TensorFlow(Part, frozen=True):
    """Which tasks of mode `tensorflow` are no workers."""

    ps: Count = 0
    chief: YesNo = "no"
    evaluator: YesNo = "no"


class Ascend(Part, frozen=True):
    """How processes of mode `ascend` find each other, and how much they tell."""

    table: YesNo = "yes"
    messages: Messages = "normal"


class Container(Part, frozen=True, kw_only=True):
    """What the program runs in."""

    image: Image
    runtime: Runtime | None = None  # of a spec that was read never: then the image or the site has said it
    mounts: Mounts = ()
    workdir: str | None = None
    writable: YesNo = "no"
    home: YesNo = "yes"


class Annotations(Part, frozen=True, rename={"retries": ANNOTATED_RETRIES, "unconditional": ANNOTATED_UNCONDITIONAL}):
    """Annotations of other training systems, accepted as they are."""

    retries: Retries | None = None
    unconditional: Literal["true", "false"] = "false"


class Metadata(Part, frozen=True):
    """The place of the annotations."""

    annotations: Annotations = Annotations()
