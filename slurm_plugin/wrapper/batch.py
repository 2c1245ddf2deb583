"""A batch script as sbatch reads it: its first block, the options in there, and our own lines. Bytes in, values out."""

from collections import namedtuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

THEIRS, OURS = b"#SBATCH", b"#PLUGIN"
_RUN = (b"slurm-plugin", b"run")
_BLANKS = " \t\n\v\f\r"


class Line(namedtuple("Line", "number text")):
    """What stands behind `#PLUGIN` or `#SBATCH`, and the line's number from 1."""

    __slots__ = ()
    number: int
    text: str


def refused(script: bytes) -> bool:
    """Whether sbatch refuses it for its form: no `#!`, a NUL, lines that end as DOS ends them."""
    return not script.startswith(b"#!") or b"\0" in script or b"\r\n" in script


def is_spec(script: bytes) -> bool:
    """Whether it is a job spec: its first line names `slurm-plugin run`, by a path or behind `env -S`."""
    command, *rest = script.partition(b"\n")[0].removeprefix(b"#!").split()[-len(_RUN) :] or [b""]
    return script.startswith(b"#!") and (command.rpartition(b"/")[2], *rest) == _RUN


def first_block(script: bytes) -> "list[bytes]":
    """The lines before the first command, without what ends them. sbatch reads no further."""
    lines = []
    start = 0
    while start < len(script):
        end = script.find(b"\n", start)
        end = len(script) if end < 0 else end
        line = script[start:end]
        bare = line.lstrip()
        if bare and not bare.startswith(b"#"):
            break
        lines.append(line)
        start = end + 1
    return lines


def ours(block: "list[bytes]") -> "list[Line]":
    """The `#PLUGIN` lines."""
    return [
        Line(number, line[len(OURS) :].decode("utf-8", "replace"))
        for number, line in enumerate(block, 1)
        if is_ours(line)
    ]


def is_ours(line: bytes) -> bool:
    """Whether a line of the first block is one of ours."""
    return line.startswith(OURS) and line[len(OURS) : len(OURS) + 1] in (b"", b" ", b"\t")


def heterogeneous(block: "list[bytes]") -> bool:
    """Whether it has several components."""
    return any(line.startswith(THEIRS) and separates(line[len(THEIRS) :].decode("latin1")) for line in block)


def separates(text: str) -> bool:
    """Whether a line begins a component of a heterogeneous job: `text` is what stands behind its `#SBATCH`.

    It is a line's first word, in any case; anywhere else it is an option's value.
    """
    return text.lower().split(maxsplit=1)[:1] in (["hetjob"], ["packjob"])


def words(block: "list[bytes]") -> "list[str]":
    """The words of all `#SBATCH` lines, as sbatch cuts them."""
    return [
        word
        for line in block
        if line.startswith(THEIRS)
        for word in _words(line[len(THEIRS) :].decode("utf-8", "surrogateescape"))
    ]


def _words(text: str) -> "Iterator[str]":
    """Not a shell's way: a backslash gives the next character in quotes too, and an unquoted `#` ends the line."""
    word, quote, escaped, begun = "", "", False, False
    for char in text:
        if char in _BLANKS and not quote:
            if begun:
                yield word
            word, escaped, begun = "", False, False
        elif escaped:
            word, escaped = word + char, False
        elif char == "\\":
            escaped = begun = True
        elif quote:
            word, quote = (word, "") if char == quote else (word + char, quote)
        elif char in "\"'":
            quote, begun = char, True
        elif char == "#":
            break
        else:
            word, begun = word + char, True
    if begun:
        yield word
