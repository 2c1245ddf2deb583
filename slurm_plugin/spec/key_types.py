"""The keys of a spec: their types, each with a description for people, and the structs of keys that contain keys."""

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

from msgspec import Meta, Struct, structs

from slurm_plugin.launch import MESSAGES, MODES
from slurm_plugin.launch.container import RUNTIMES
from slurm_plugin.records.features import LONGEST_PATH, MOST_NODES, MOST_SPARES, NOT_IN_A_DIRECTIVE, PATH_ACCEPTED
from slurm_plugin.records.job_plan import ACCESS
from slurm_plugin.records.slow import ACTIONS
from slurm_plugin.records.token import MAX_RETRIES
from slurm_plugin.spec.documents import COMMAS, ONE

if TYPE_CHECKING:
    ModeName: TypeAlias = str
    Runtime: TypeAlias = str
    Access: TypeAlias = str
    Messages: TypeAlias = str
    Reaction: TypeAlias = str
else:
    ModeName, Messages = Literal[tuple(MODES)], Literal[MESSAGES]
    Runtime, Access, Reaction = Literal[RUNTIMES], Literal[ACCESS], Literal[ACTIONS]
YesNo = Literal["yes", "no"]

# Paths become values of #SBATCH lines (slurm_plugin.spec.sbatch_flags). sbatch expands neither `$` nor `~` there.
_NOT_IN_A_PATH: Final = f"{NOT_IN_A_DIRECTIVE}$"
_WORD: Final = r"[A-Za-z0-9_][A-Za-z0-9_.+@:-]{0,255}"
_EXPRESSION: Final = r"[!#%&(-\[\]^_a-~]{1,4096}"  # printable ASCII without blanks, quotes, backslashes and `$`
_INDEXES: Final = r"[0-9]{1,9}(?:-[0-9]{1,9}(?::[0-9]{1,9})?)?"
ONE_TEXT: Final = {"$comment": "or one text with commas"}  # marks a list that may be one text
_RANGE: Final = {"pattern": "^[1-9][0-9]{0,8}(-[1-9][0-9]{0,8})?$"}
FEWEST_NICE: Final = -2147483645  # -(NICE_OFFSET - 3), with NICE_OFFSET of slurm.h


def whole(least: int, most: int, more: str = "") -> Meta:
    """Return the Meta of a whole number. `more` is appended to its description."""
    return Meta(ge=least, le=most, description=f"a whole number from {least} to {most}{more}")


def one_or_more(words: str) -> Meta:
    """Return the Meta of a list of texts, or of one text with commas. Both become a tuple."""
    return Meta(description=words, extra=COMMAS, extra_json_schema=ONE_TEXT)


Count = Annotated[int, whole(0, MOST_SPARES)]
Nodes = Annotated[int, whole(1, MOST_NODES, ", or a range such as 4-8"), Meta(extra_json_schema=_RANGE)]
Fewest = Annotated[int, whole(1, MOST_NODES)]
Cpus = Annotated[int, whole(1, 65536)]
Retries = Annotated[int, whole(0, MAX_RETRIES)]
Nice = Annotated[int, whole(FEWEST_NICE, -FEWEST_NICE, "; below 0 for admins alone")]
Name = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z",
        description="a name of up to 64 letters, digits, `.`, `_` and `-`, the first a letter or digit",
    ),
]
Command = Annotated[str, Meta(min_length=1, max_length=65536, description="a command that begins with an executable")]
# sbatch prepends the working directory to the log's name, and would expand a `%` in the directory as a pattern.
Directory = Annotated[
    str,
    Meta(
        pattern=rf"^(?!~)[^%{_NOT_IN_A_PATH}]+\Z",
        max_length=LONGEST_PATH,
        description="a path without control characters, backslashes, double quotes, `$`, `%` or a leading `~`",
    ),
]
FilePath = Annotated[
    str, Meta(pattern=rf"^(?!~)[^{_NOT_IN_A_PATH}]+\Z", max_length=LONGEST_PATH, description=PATH_ACCEPTED)
]
FilePaths = Annotated[
    tuple[FilePath, ...],
    Meta(
        max_length=64,
        description=f"{PATH_ACCEPTED}, or a list",
        extra=ONE,
        extra_json_schema={"$comment": "or one text"},
    ),
]
Word = Annotated[str, Meta(pattern=rf"^{_WORD}\Z", description="a name of letters, digits and `_.+@:-`")]
Words = Annotated[tuple[Word, ...], one_or_more("a name of letters, digits and `_.+@:-`, or a list of names")]
Modules = Annotated[
    tuple[Annotated[str, Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.+@:/=-]{0,255}\Z")], ...],
    one_or_more("names such as `gcc/12.2.0`, or a list of them"),
]
_Expression = Annotated[str, Meta(pattern=rf"^{_EXPRESSION}\Z")]
Constraint = Annotated[
    _Expression, Meta(description="features as sbatch has them, such as `a100&ib` or `[rack1|rack2]`")
]
HostList = Annotated[tuple[_Expression, ...], one_or_more("node names such as `n[1-4],n9`, or a list of them")]
Licenses = Annotated[tuple[_Expression, ...], one_or_more("licences such as `matlab:2,fluent`, or a list of them")]
Dependency = Annotated[
    tuple[_Expression, ...], one_or_more("what sbatch has, such as `afterok:17` or `singleton`, or a list of them")
]
Array = Annotated[
    str,
    Meta(
        pattern=rf"^{_INDEXES}(?:,{_INDEXES})*(?:%[1-9][0-9]{{0,8}})?\Z",
        max_length=4096,
        description="task numbers such as 0-31, 1,3,7 or 0-30:2; with %4 behind it at most 4 at a time",
    ),
]
Moment = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9:/.+ -]{0,63}\Z",
        description="a time as sbatch has it, such as 16:00, now+2hours or 2030-01-20T12:34:00",
    ),
]
Memory = Annotated[
    str,
    Meta(
        pattern=r"^(?:0|[1-9][0-9]{0,8} ?[KMGTkmgt][Bb]?)\Z",
        description="a size such as 64GB, 512MB or Slurm's 64G; 0: all of the node's",
    ),
]
HoldTime = Annotated[str, Meta(extra_json_schema={"$comment": "or yes, no"})]
# No runtime accepts an image that begins with `-`. Control characters are refused because Slurm logs the options of a
# step on one line.
Image = Annotated[
    str,
    Meta(
        pattern=r"^[^-\s\x00-\x1f\x7f\ud800-\udfff][^\x00-\x1f\x7f\ud800-\udfff]*\Z",
        max_length=1024,
        description="an image: a path, or a name as the runtime has it, such as docker://python:3.12",
    ),
]
Mounts = Annotated[tuple[str, ...], one_or_more("SRC, SRC:DST or SRC:DST:ro, or a list of them")]
Exclusive = Literal["no", "yes", "user", "mcs", "topo"]
MailTypes = Annotated[tuple[str, ...], one_or_more("events such as `END,FAIL`, or a list of them")]
MAIL_TYPES: Final = (
    *("NONE", "BEGIN", "END", "FAIL", "REQUEUE", "ALL", "INVALID_DEPEND", "STAGE_OUT"),
    *("TIME_LIMIT", "TIME_LIMIT_90", "TIME_LIMIT_80", "TIME_LIMIT_50", "ARRAY_TASKS"),
)
"""The events of `--mail-type`: the same on 22.05, 24.11 and 26.05 (sbatch(1))."""


def joined(value: str | tuple[str, ...] | None) -> str:
    """Return one or several texts as one value of sbatch, with commas; empty for None."""
    return value if isinstance(value, str) else ",".join(value or ())


ANNOTATED_RETRIES: Final = "fault-tolerance/job-retry-num"
ANNOTATED_UNCONDITIONAL: Final = "fault-tolerance/job-unconditional-retry"
KINDS: Final = ("gpu", "npu")  # kinds of accelerators


class Part(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A part of a spec."""


class Accelerators(Part, frozen=True):
    """Accelerators of each node, by Slurm's gres name. All have the same kind, and the same `type` if it is given."""

    gpu: Count = 0
    npu: Count = 0
    type: Word | None = None

    @property
    def kind(self) -> str:
        """Return the gres name; empty without accelerators."""
        return next((name for name in KINDS if getattr(self, name)), "")

    @property
    def count(self) -> int:
        """Return the number on each node."""
        return self.gpu or self.npu

    @property
    def gres(self) -> str:
        """Return the value of --gres: `gpu:a100:8`; empty without accelerators."""
        return ":".join(filter(None, (self.kind, self.type, str(self.count)))) if self.count else ""


class StageIn(Part, frozen=True, rename={"source": "from"}):
    """Data that each node copies to its own disk."""

    source: FilePath
    to: Name | None = None

    @property
    def name(self) -> str:
        """Return the name of the data in SLURM_PLUGIN_DATA."""
        return self.to or PurePosixPath(self.source).name


class Hooks(Part, frozen=True):
    """Files to run once on each node, and on the first node when something happens to the job.

    `found`: whether to run the hooks in the program's directory, too.
    """

    before: FilePaths = ()
    after: FilePaths = ()
    on_restart: FilePaths = ()
    on_failure: FilePaths = ()
    on_hold: FilePaths = ()
    found: YesNo = "yes"


HOOKS: Final = tuple(field.name for field in structs.fields(Hooks) if field.name != "found")


class Share(Part, frozen=True):
    """A group of other users, and what they may do with the job."""

    group: Word | None = None
    access: Access = "read-only"


class Performance(Part, frozen=True):
    """When an iteration is slow, by its hardware time and its end-to-end time, and what happens then."""

    threshold: Annotated[float, Meta(gt=0, le=1, description="a number above 0, at most 1")]
    action: Reaction = "alert"
    pattern: str | None = None


class Logs(Part, frozen=True):
    """Log files of nodes and processes beside the job's log, and rank numbers in that."""

    per: Literal["job", "node", "rank", "both"] | None = None
    directory: Directory = "logs"
    label: YesNo = "no"


class Group(Part, frozen=True):
    """One group of nodes of a heterogeneous job. Keys that the group does not set have the job's values."""

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
    def own_keys(self) -> dict[str, Any]:
        """Return the keys that the group sets."""
        return {name: value for name, value in structs.asdict(self).items() if value is not None}


class Mail(Part, frozen=True, kw_only=True):
    """The receiver of mail, and the events."""

    user: Word | None = None
    type: MailTypes


class TensorFlow(Part, frozen=True):
    """The tasks of mode `tensorflow` that are not workers."""

    ps: Count = 0
    chief: YesNo = "no"
    evaluator: YesNo = "no"


class Ascend(Part, frozen=True):
    """How processes of mode `ascend` find each other, and how much they log."""

    table: YesNo = "yes"
    messages: Messages = "normal"


class Container(Part, frozen=True, kw_only=True):
    """The container of the program."""

    image: Image
    runtime: Runtime | None = None  # never None after `load`: the image or the site sets it
    mounts: Mounts = ()
    workdir: str | None = None
    writable: YesNo = "no"
    home: YesNo = "yes"


class Annotations(Part, frozen=True, rename={"retries": ANNOTATED_RETRIES, "unconditional": ANNOTATED_UNCONDITIONAL}):
    """Annotations of other training systems, accepted unchanged."""

    retries: Retries | None = None
    unconditional: Literal["true", "false"] = "false"


class Metadata(Part, frozen=True):
    """The mapping that contains the annotations."""

    annotations: Annotations = Annotations()
