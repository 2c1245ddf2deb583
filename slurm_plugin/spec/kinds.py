"""What the keys of a spec accept: each a type, with its words for people."""

from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias

from msgspec import Meta

from slurm_plugin.container import RUNTIMES
from slurm_plugin.modes import MESSAGES, MODES
from slurm_plugin.token import MAX_RETRIES
from slurm_plugin.validate import COMMAS, ONE

if TYPE_CHECKING:
    ModeName: TypeAlias = str
    Runtime: TypeAlias = str
    Messages: TypeAlias = str
else:
    ModeName, Messages = Literal[tuple(MODES)], Literal[MESSAGES]
    Runtime = Literal[RUNTIMES]
YesNo = Literal["yes", "no"]

# What becomes a value of an #SBATCH line (slurm_plugin.directive); nothing expands `$` or `~` there.
_NOT_IN_A_DIRECTIVE: Final = r'\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\\"$'
_WORD: Final = r"[A-Za-z0-9_][A-Za-z0-9_.+@:-]{0,255}"
_EXPRESSION: Final = r"[!#%&(-\[\]^_a-~]{1,4096}"  # printable ASCII without blanks, quotes, backslashes and `$`
_INDEXES: Final = r"[0-9]{1,9}(?:-[0-9]{1,9}(?::[0-9]{1,9})?)?"
ONE_TEXT: Final = {"$comment": "or one text with commas"}  # of a list, for slurm_plugin.spec.schema
_RANGE: Final = {"pattern": "^[1-9][0-9]{0,8}(-[1-9][0-9]{0,8})?$"}
MOST_NODES: Final = 65536
FEWEST_NICE: Final = -2147483645  # NICE_OFFSET of slurm.h, less 3


def _one_or_more(words: str) -> Meta:
    """Of a list of texts, which one text with commas may stand for: both become a tuple."""
    return Meta(description=words, extra=COMMAS, extra_json_schema=ONE_TEXT)


Count = Annotated[int, Meta(ge=0, le=1024, description="a whole number from 0 to 1024")]
Nodes = Annotated[
    int,
    Meta(
        ge=1,
        le=MOST_NODES,
        description=f"a whole number from 1 to {MOST_NODES}, or a range such as 4-8",
        extra_json_schema=_RANGE,
    ),
]
Fewest = Annotated[int, Meta(ge=1, le=MOST_NODES, description=f"a whole number from 1 to {MOST_NODES}")]
Cpus = Annotated[int, Meta(ge=1, le=65536, description="a whole number from 1 to 65536")]
Retries = Annotated[int, Meta(ge=0, le=MAX_RETRIES, description=f"a whole number from 0 to {MAX_RETRIES}")]
Nice = Annotated[
    int,
    Meta(
        ge=FEWEST_NICE,
        le=-FEWEST_NICE,
        description=f"a whole number from {FEWEST_NICE} to {-FEWEST_NICE}; below 0 for admins alone",
    ),
]
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
FilePaths = Annotated[
    tuple[FilePath, ...],
    Meta(
        max_length=64,
        description="a path without control characters, backslashes, double quotes, `$` or a leading `~`, or a list",
        extra=ONE,
        extra_json_schema={"$comment": "or one text"},
    ),
]
Word = Annotated[str, Meta(pattern=rf"^{_WORD}\Z", description="a name of letters, digits and `_.+@:-`")]
Words = Annotated[
    tuple[Word, ...],
    _one_or_more("a name of letters, digits and `_.+@:-`, or a list of names"),
]
Modules = Annotated[
    tuple[Annotated[str, Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.+@:/=-]{0,255}\Z")], ...],
    _one_or_more("names such as `gcc/12.2.0`, or a list of them"),
]
_Expression = Annotated[str, Meta(pattern=rf"^{_EXPRESSION}\Z")]
Constraint = Annotated[
    _Expression, Meta(description="features as sbatch has them, such as `a100&ib` or `[rack1|rack2]`")
]
HostList = Annotated[
    tuple[_Expression, ...],
    _one_or_more("node names such as `n[1-4],n9`, or a list of them"),
]
Licenses = Annotated[
    tuple[_Expression, ...],
    _one_or_more("licences such as `matlab:2,fluent`, or a list of them"),
]
Dependency = Annotated[
    tuple[_Expression, ...],
    _one_or_more("what sbatch has, such as `afterok:17` or `singleton`, or a list of them"),
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
# No runtime takes one that begins like an option; Slurm writes the options of a step into one line of its log.
Image = Annotated[
    str,
    Meta(
        pattern=r"^[^-\s\x00-\x1f\x7f\ud800-\udfff][^\x00-\x1f\x7f\ud800-\udfff]*\Z",
        max_length=1024,
        description="an image: a path, or a name as the runtime has it, such as docker://python:3.12",
    ),
]
Mounts = Annotated[
    tuple[str, ...],
    _one_or_more("SRC, SRC:DST or SRC:DST:ro, or a list of them"),
]
Exclusive = Literal["no", "yes", "user", "mcs", "topo"]
MailTypes = Annotated[
    tuple[str, ...],
    _one_or_more("events such as `END,FAIL`, or a list of them"),
]
MAIL_TYPES: Final = (
    *("NONE", "BEGIN", "END", "FAIL", "REQUEUE", "ALL", "INVALID_DEPEND", "STAGE_OUT"),
    *("TIME_LIMIT", "TIME_LIMIT_90", "TIME_LIMIT_80", "TIME_LIMIT_50", "ARRAY_TASKS"),
)
"""Of `--mail-type`, the same on 22.05, 24.11 and 26.05 (sbatch(1))."""


def joined(value: str | tuple[str, ...] | None) -> str:
    """A text, or texts, as one value of sbatch's; empty where there is none."""
    return value if isinstance(value, str) else ",".join(value or ())
