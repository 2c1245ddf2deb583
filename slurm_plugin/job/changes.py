"""What a hook changed in its environment: found, told, and handed on as lines for TaskProlog or as JSON."""

import json
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

# Bash's own, set by every shell (bash(1), Shell Variables). Functions are exported as BASH_FUNC_name%%.
_OF_THE_SHELL = frozenset({"_", "SHLVL", "PWD", "OLDPWD", "BASHOPTS", "SHELLOPTS"})
_FUNCTION = "BASH_FUNC_"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_SLURMS = ("SLURM_", "SLURMD_")  # SLURM_PLUGIN_ too: they say which task this is, and TaskProlog where its file stands
_LONGEST = 131072  # bytes of NAME=value with its NUL that execve(2) takes: MAX_ARG_STRLEN in linux/binfmts.h
KEPT = ("ASCEND_PROCESS_LOG_PATH",)  # which a mode's own lines leave as it is where it is set
_SHOWN = 20  # names in a line of the log, which srun keeps whole up to 1024 bytes


@dataclass(frozen=True, slots=True)
class Changes:
    """Variables set (new or changed) and unset; those that cannot travel, each with the reason."""

    set: Mapping[str, str]
    unset: tuple[str, ...]
    refused: Mapping[str, str]


NONE = Changes({}, (), {})
END = b".\0"  # after the last variable of a whole dump


def parse(dump: bytes) -> dict[str, str]:
    """An environment from `NAME=value` parts that end with NUL, as env -0 prints them (env(1)) and the kernel keeps."""
    pairs = (part.partition(b"=") for part in dump.split(b"\0") if part)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> Changes:
    """What became of an environment, by name; what a shell changes by itself is no change."""
    found: dict[str, str] = {}
    gone: list[str] = []
    refused: dict[str, str] = {}
    for name in sorted(before.keys() | after.keys()):
        value = after.get(name)
        if value == before.get(name) or name in _OF_THE_SHELL or name.startswith(_FUNCTION):
            continue
        if why := _why_not(name, value or ""):
            refused[name] = why
        elif value is None:
            gone.append(name)
        else:
            found[name] = value
    return Changes(found, tuple(gone), refused)


def _why_not(name: str, value: str) -> str:
    """Why a variable cannot be handed on; empty where it can."""
    if name.startswith(_SLURMS):
        return "Slurm's and ours to set"
    if not _NAME.fullmatch(name):
        return "no name for a variable"
    if "\n" in value:
        return "its value has several lines"
    if len(os.fsencode(name)) + len(os.fsencode(value)) + 2 > _LONGEST:
        return f"longer than {_LONGEST} bytes"
    return ""


def apply(environ: Mapping[str, str], found: Changes) -> dict[str, str]:
    """The environment with the changes made."""
    return {**{name: value for name, value in environ.items() if name not in found.unset}, **found.set}


def task_lines(found: Changes) -> str:
    """Sh that prints the changes for slurmstepd, byte for byte, with one builtin; empty where nothing changed.

    slurmstepd takes all that follows the first `=` up to the end of the line as the value, without any unquoting
    (_proc_stdout in slurm's src/slurmd/slurmstepd/task.c).
    """
    printed = [f"export {name}={value}" for name, value in found.set.items()]
    printed += [f"unset {name}" for name in found.unset]
    known = "".join(f"{name}={shlex.quote(found.set[name])}\n" for name in KEPT if name in found.set)
    return f"{known}printf '%s\\n' {' '.join(map(shlex.quote, printed))}\n" if printed else ""


def to_json(found: Changes) -> str:
    """One line of ASCII."""
    return json.dumps({"set": dict(found.set), "unset": found.unset}, separators=(",", ":")) + "\n"


def from_json(text: str) -> Changes:
    """The changes in such a line. Raises ValueError where it is none."""
    try:
        fields = json.loads(text)
        return Changes(
            {str(name): str(value) for name, value in fields["set"].items()}, tuple(map(str, fields["unset"])), {}
        )
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"not the changes of a hook: {error}") from error


def told(found: Changes) -> str:
    """The changes for a line of the log: how many, and their names."""
    names = [*found.set, *found.unset]
    if not names:
        return "no variable changed"
    return f"{len(names)} variable{'s'[: len(names) > 1]} changed: {_listed(names)}"


def told_refused(found: Changes) -> str:
    """Variables that are not handed on, for a line of the log; empty where there are none."""
    return _listed([f"{_shown(name)} ({why})" for name, why in found.refused.items()])


def _listed(parts: list[str]) -> str:
    """The first of them, as far as a line of the log goes."""
    shown: list[str] = []
    for part in parts[:_SHOWN]:
        if sum(map(len, shown)) + 2 * len(shown) + len(part) > 700:
            break
        shown.append(part)
    rest = len(parts) - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest else "")


def _shown(name: str) -> str:
    """A name that a hook chose, as one printable word."""
    return name if _NAME.fullmatch(name) else ascii(name[:40])
