"""Read a batch script as sbatch does: its first block, the options in it, and the `#PLUGIN` lines."""

from collections import namedtuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

THEIRS, OURS = b"#SBATCH", b"#PLUGIN"
_RUN = (b"slurm-plugin", b"run")
_BLANKS = " \t\n\v\f\r"


class Line(namedtuple("Line", "number text")):
    """The text after `#PLUGIN`, and the number of the line, counted from 1."""

    __slots__ = ()
    number: int
    text: str


def refused(script: bytes) -> bool:
    """Return whether sbatch refuses the script for its form: no `#!`, a NUL byte, or DOS line ends."""
    return not script.startswith(b"#!") or b"\0" in script or b"\r\n" in script


def is_spec(script: bytes) -> bool:
    """Return whether a script is a job spec: its first line runs `slurm-plugin run`, by a path or through `env -S`."""
    command, *rest = script.partition(b"\n")[0].removeprefix(b"#!").split()[-len(_RUN) :] or [b""]
    return script.startswith(b"#!") and (command.rpartition(b"/")[2], *rest) == _RUN


def is_script(data: bytes) -> bool:
    """Return whether a file is a batch script, not a job spec."""
    return data.startswith(b"#!") and not is_spec(data)


def first_block(script: bytes) -> "list[bytes]":
    """Return the lines before the first command, without line ends. sbatch reads no further."""
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
    """Return the `#PLUGIN` lines."""
    return [
        Line(number, line[len(OURS) :].decode("utf-8", "replace"))
        for number, line in enumerate(block, 1)
        if is_ours(line)
    ]


def is_ours(line: bytes) -> bool:
    """Return whether a line of the first block is a `#PLUGIN` line."""
    return line.startswith(OURS) and line[len(OURS) : len(OURS) + 1] in (b"", b" ", b"\t")


def alike(block: "list[bytes]") -> "list[Line]":
    """Return the whole lines that may be misspelt `#PLUGIN` lines: they have the word, in any case, and a `=`."""
    return [
        Line(number, line.decode("utf-8", "replace"))
        for number, line in enumerate(block, 1)
        if b"PLUGIN" in line.upper() and b"=" in line and not is_ours(line)
    ]


def late(script: bytes, block: "list[bytes]") -> "list[Line]":
    """Return the whole `#PLUGIN` lines below the first block, but none of another script that this one contains."""
    found: list[Line] = []
    if b"\n" + OURS not in script:
        return found
    for number, line in enumerate(script.split(b"\n"), 1):
        if number > len(block):
            if line.startswith(b"#!"):
                break
            if is_ours(line):
                found.append(Line(number, line.decode("utf-8", "replace")))
    return found


def begins_component(line: bytes) -> bool:
    """Return whether a line begins another component of a heterogeneous job.

    The separator is the first word after `#SBATCH`, in any letter case. Elsewhere the word is an option's value.
    """
    return line.startswith(THEIRS) and line[len(THEIRS) :].lower().split(maxsplit=1)[:1] in ([b"hetjob"], [b"packjob"])


def words(block: "list[bytes]") -> "list[str]":
    """Return the words of all `#SBATCH` lines, as sbatch splits them."""
    return [
        word
        for line in block
        if line.startswith(THEIRS)
        for word in _words(line[len(THEIRS) :].decode("utf-8", "surrogateescape"))
    ]


def _words(text: str) -> "Iterator[str]":
    """Split a line into words as sbatch does. Unlike in a shell, a backslash escapes inside any quotes."""
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
