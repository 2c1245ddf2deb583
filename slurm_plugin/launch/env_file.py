"""`env_file:` of a spec: variables of the command from files. Standard library only: the first node reads the files.

The grammar is that of `docker run --env-file` (opts/file.go of docker/cli): lines of `NAME=VALUE` in UTF-8. The value
is literal up to the end of the line. Empty lines and lines that begin with `#` are skipped. Forms that other programs
read differently are refused: a name without `=`, `export`, a value in quotes, a duplicate name.
"""

import os
import re
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from slurm_plugin.errors import UsageError, printable
from slurm_plugin.launch.mode import LONGEST_VALUE
from slurm_plugin.slurm.input_variables import INPUT

MOST_BYTES: Final = 1 << 20
_MOST_TOLD: Final = 10  # the most problems of a file that a message lists
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_NO_VALUE = re.compile(r"[\0\ud800-\udfff]")
_BLANKS: Final = " \t"
_BOM: Final = b"\xef\xbb\xbf"
# bash ends a script that assigns to one of these, or exports a value of its own, or none. SHLVL and _ are
# accepted: files that `env` has written contain them.
_OF_BASH: Final = frozenset(
    """BASHOPTS BASHPID BASH_ARGC BASH_ARGV BASH_COMMAND BASH_LINENO BASH_SOURCE BASH_VERSINFO DIRSTACK EPOCHREALTIME
    EPOCHSECONDS EUID FUNCNAME GROUPS HISTCMD LINENO PPID RANDOM SHELLOPTS SRANDOM UID""".split()  # noqa: SIM905
)


def wrong(name: str, value: str) -> str:
    """Return why a job may not have this variable; empty if it may. Never quote the value: it may be secret."""
    if not _NAME.fullmatch(name):
        return "accepted names: letters, digits and `_`, the first not a digit"
    if name.startswith("SLURM_") and name not in INPUT:
        return "SLURM_ names are Slurm's and ours; choose another name, or an input variable of srun: man srun"
    if name in _OF_BASH:
        return "bash does not let a script set it; choose another name"
    if _NO_VALUE.search(value):
        return "the value has a NUL, or what is no UTF-8, in it; accepted: text"
    if len(f"{name}={value}".encode(errors="replace")) > LONGEST_VALUE:
        return f"found {len(value)} characters; a variable can hold {LONGEST_VALUE} bytes; use a file"
    return ""


def parse(data: bytes) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the variables of a file, and a message for each bad line. Never quote a value: it may be secret."""
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
    """Yield number, name, value and problem of each line but empty lines and comments. A valid line has problem ""."""
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
    """Return the variables of a file. Raise UsageError if the file is unreadable, unsafe or invalid."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # does not wait if the path is a pipe
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
        raise _refused(path, "; ".join(problems[:_MOST_TOLD]) + more, "the form of docker run --env-file: NAME=VALUE")
    return found


def over(environ: Mapping[str, str], paths: Sequence[str], own: Collection[str]) -> Mapping[str, str]:
    """Return the environment with the files' variables, except those in `own`. The last file wins. Raise UsageError."""
    found: dict[str, str] = {}
    for path in paths:
        found |= read(path)
    return {**environ, **{name: value for name, value in found.items() if name not in own}}


def _refused(path: str, text: str, see: str) -> UsageError:
    return UsageError(f"env_file: {printable(path)}: {text}\n  see: {printable(see)}")
