"""The text of slurm.conf, read as Slurm reads it and edited so that every edit can be taken back. Text in, text out.

What the site wrote stays: a line that gives way to one of ours becomes a comment behind MARK, and ours stand in one
block at the end. `without` undoes both, whatever else has been edited since.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

MARK: Final = "#slurm_plugin# "
BEGIN: Final = (
    "# BEGIN slurm_plugin: written by `slurm-plugin site install`; `slurm-plugin site uninstall` takes it out"
)
END: Final = "# END slurm_plugin"
# Of src/common/parse_config.c: a key, an operator that changes the value that is there, a value in quotes or without.
_PAIR: Final = re.compile(r'\s*([A-Za-z0-9_.]+)\s*([-*+/]?)=\s*(?:"([^"]*)"|(\S+))(?=\s|$)')
_INCLUDE: Final = re.compile(r"include\s+(\S+)", re.IGNORECASE)


class DamagedError(ValueError):
    """The block of ours is not whole."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A key and its value; `first` to `end` are its lines. `alone`: it can be taken out without another going too."""

    name: str  # lower case: Slurm does not distinguish
    value: str
    first: int
    end: int
    alone: bool


def settings(text: str) -> tuple[Setting, ...]:
    """Every key = value in the order of the file; files that it includes are not looked at."""
    found = []
    for first, end, line in _logical(text):
        pairs = [] if _INCLUDE.match(line) else _pairs(line)
        plain = len(pairs) == 1 and not pairs[0][1]
        found += [Setting(name.lower(), value, first, end, plain) for name, _, value in pairs]
    return tuple(found)


def includes(text: str) -> tuple[str, ...]:
    """The files that it includes, as it names them."""
    return tuple(found[1] for _, _, line in _logical(text) if (found := _INCLUDE.match(line)))


def value(found: Iterable[Setting], name: str) -> str:
    """A setting that stands once; of several the last, as Slurm takes it; empty where there is none."""
    return next((each.value for each in reversed(tuple(found)) if each.name == name.lower()), "")


def without(text: str) -> str:
    """The text as the site wrote it. Raises DamagedError where our block has no end."""
    kept, ours = [], False
    for line in _lines(text):
        if line.startswith("# BEGIN slurm_plugin"):
            ours = True
        elif ours:
            ours = not line.startswith(END)
        else:
            kept.append(line.removeprefix(MARK))
    if ours:
        raise DamagedError(f"the lines after {BEGIN.partition(':')[0]!r} have no {END!r}")
    return "".join(kept)


def replaced(text: str, setting: Setting, line: str = "") -> str:
    """Without the lines of this setting, or with `line` in their place. Its other settings' lines are then others."""
    lines = _lines(text)
    return "".join([*lines[: setting.first], *([f"{line}\n"] if line else []), *lines[setting.end :]])


def with_block(text: str, wanted: Mapping[str, str], giving_way: Iterable[Setting]) -> str:
    """With our block at the end, and the settings that give way as comments."""
    lines = _lines(text)
    for setting in giving_way:
        for number in range(setting.first, setting.end):
            lines[number] = MARK + lines[number].removeprefix(MARK)
    if not wanted:
        return "".join(lines)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    return "".join([*lines, f"{BEGIN}\n", *(f"{name}={given}\n" for name, given in wanted.items()), f"{END}\n"])


def _lines(text: str) -> list[str]:
    """With their ends. Not splitlines(): to Slurm a form feed ends none."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _pairs(line: str) -> list[tuple[str, str, str]]:
    found, at = [], 0
    while pair := _PAIR.match(line, at):
        found.append((pair[1], pair[2], pair[4] if pair[3] is None else pair[3]))
        at = pair.end()
    return found


def _logical(text: str) -> Iterable[tuple[int, int, str]]:
    """Each line as Slurm sees it, with its first and its last + 1: comments gone, continuations joined."""
    joined, first = "", 0
    lines = _lines(text)
    for number, raw in enumerate(lines):
        line = re.sub(r"(?<!\\)((?:\\\\)*)#.*", r"\1", raw.removesuffix("\n"))
        tail = line.rstrip()
        slashes = len(tail) - len(tail.rstrip("\\"))
        if slashes % 2 and number + 1 < len(lines):
            joined += tail[:-1]
            continue
        yield first, number + 1, re.sub(r"\\(.)", r"\1", joined + line)
        joined, first = "", number + 1
