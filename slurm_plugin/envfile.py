"""`env_file:` of a spec: variables of the command from files. Standard library only: they are read on the first node.

The grammar is that of `docker run --env-file` (opts/file.go of docker/cli): `NAME=VALUE` a line, the value everything
up to the line's end as it stands, UTF-8, lines that begin with `#` and empty ones skipped. What other readers of such
files take otherwise is refused: a name alone, `export`, a value in quotes, a name twice.
"""

import os
import re
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from slurm_plugin.errors import UsageError, printable
from slurm_plugin.modes.base import LONGEST_VALUE

MOST_BYTES: Final = 1 << 20
_MOST_TOLD: Final = 10  # problems of one file
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_NO_VALUE = re.compile(r"[\0\ud800-\udfff]")
_BLANKS: Final = " \t"
_BOM: Final = b"\xef\xbb\xbf"
# bash ends a script that assigns to one of these.
_READ_ONLY: Final = frozenset({"BASHOPTS", "BASH_VERSINFO", "EUID", "PPID", "SHELLOPTS", "UID"})


def wrong(name: str, value: str) -> str:
    """Why a job may not be given this variable; empty where it may. No word of the value is in it."""
    if not _NAME.fullmatch(name):
        return "accepted names: letters, digits and `_`, the first not a digit"
    if name.startswith("SLURM_"):
        return "SLURM_ names are Slurm's and ours; choose another name"
    if name in _READ_ONLY:
        return "bash does not let a script set it; choose another name"
    if _NO_VALUE.search(value):
        return "the value has a NUL, or what is no UTF-8, in it; accepted: text"
    if len(f"{name}={value}".encode(errors="replace")) > LONGEST_VALUE:
        return f"found {len(value)} characters; a variable can hold {LONGEST_VALUE} bytes; use a file"
    return ""


def parse(data: bytes) -> tuple[dict[str, str], tuple[str, ...]]:
    """The variables of a file, and what is wrong with it, a line each. No value is told: it may be a secret."""
    found: dict[str, str] = {}
    problems: list[str] = []
    first: dict[str, int] = {}
    for number, name, value, text in _lines(data):
        if text:
            problems.append(f"line {number}: {text}")
        elif name in first:
            problems.append(f"line {number}: {name}: found twice, first in line {first[name]}")
        else:
            first[name], found[name] = number, value
    return found, tuple(problems)


def _lines(data: bytes) -> Iterator[tuple[int, str, str, str]]:
    """Each line that is to be a variable: its number, name and value, and what is wrong with it."""
    for number, line in enumerate(data.removeprefix(_BOM).split(b"\n"), 1):
        text = line.removesuffix(b"\r").decode(errors="surrogateescape").lstrip(_BLANKS)
        if not text or text.startswith("#"):
            continue
        name, equals, value = text.partition("=")
        if not equals:
            yield number, name, value, "found no `=`; accepted: NAME=VALUE"
        elif name.startswith("export "):
            yield number, name, value, "found export; accepted: NAME=VALUE, as no shell reads it"
        elif _in_quotes(value):
            why = "found a value in quotes, which some readers keep; accepted: the value as it stands, without them"
            yield number, name, value, f"{printable(name[:60])}: {why}"
        else:
            why = wrong(name, value)
            yield number, name, value, f"{printable(name[:60])}: {why}" if why else ""


def _in_quotes(value: str) -> bool:
    bare = value.strip(_BLANKS)
    return len(bare) > 1 and bare[0] == bare[-1] and bare[0] in "\"'"


def read(path: str) -> dict[str, str]:
    """The variables of a file. Raises UsageError for one that is not to be read, or not to be trusted."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe in its place holds nobody up
        with os.fdopen(fd, "rb") as file:
            facts = os.fstat(fd)
            data = file.read(MOST_BYTES + 1) if stat.S_ISREG(facts.st_mode) else b""
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise _refused(path, f"found {why}; accepted: a file that the job's user can read", f"ls -l {path}") from error
    if not stat.S_ISREG(facts.st_mode):
        raise _refused(path, "found no file; accepted: a file that the job's user can read", f"ls -l {path}")
    if facts.st_mode & stat.S_IWOTH:
        raise _refused(path, "all users may write to it, and so could set what your job runs with", f"chmod o-w {path}")
    if len(data) > MOST_BYTES:
        raise _refused(path, f"found more than {MOST_BYTES} bytes; accepted: a few lines", f"ls -l {path}")
    found, problems = parse(data)
    if problems:
        more = f"; and {len(problems) - _MOST_TOLD} more" if len(problems) > _MOST_TOLD else ""
        raise _refused(path, "; ".join(problems[:_MOST_TOLD]) + more, "docs/spec.md, Variables from files")
    return found


def over(environ: Mapping[str, str], paths: Sequence[str], own: Collection[str]) -> Mapping[str, str]:
    """The environment with what the files say: a later file wins, the names in `own` stay. Raises UsageError."""
    found: dict[str, str] = {}
    for path in paths:
        found |= read(path)
    return {**environ, **{name: value for name, value in found.items() if name not in own}}


def _refused(path: str, text: str, see: str) -> UsageError:
    return UsageError(f"env_file: {printable(path)}: {text}\n  see: {printable(see)}")
