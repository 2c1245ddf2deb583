"""Parse slurm.conf as Slurm does, and edit its text so that every edit can be undone.

The site's lines are kept. If our line replaces a line, that line becomes a comment after MARK. Our lines are one block
at the end. `without` undoes both, even if the site has edited the file since.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

# Parameter of slurm.conf -> our hook.
HOOKS: Final[Mapping[str, str]] = {
    "Prolog": "prolog",
    "Epilog": "epilog",
    "TaskProlog": "task_prolog",
    "EpilogSlurmctld": "epilog_slurmctld",
    "HealthCheckProgram": "periodic",
}
MARK: Final = "#slurm_plugin# "
BEGIN: Final = (
    "# BEGIN slurm_plugin: written by `slurm-plugin site install`; `slurm-plugin site uninstall` takes it out"
)
END: Final = "# END slurm_plugin"
# As in src/common/parse_config.c: a key, an operator before the `=`, and the value with or without quotes.
_PAIR: Final = re.compile(r'\s*([A-Za-z0-9_.]+)\s*([-*+/]?)=\s*(?:"([^"]*)"|(\S+))(?=\s|$)')
_INCLUDE: Final = re.compile(r"include\s+(\S+)", re.IGNORECASE)


class DamagedError(ValueError):
    """The end of our block is missing."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A key and its value, in lines `first` to `end` - 1. `alone`: nothing else is in them, and the operator is `=`."""

    name: str  # in lower case: Slurm ignores case
    value: str
    first: int
    end: int
    alone: bool


def settings(text: str) -> tuple[Setting, ...]:
    """Return every key = value in the order of the text. Do not read included files."""
    found = []
    for first, end, line in _logical(text):
        pairs = [] if _INCLUDE.match(line) else _pairs(line)
        plain = len(pairs) == 1 and not pairs[0][1]
        found += [Setting(name.lower(), value, first, end, plain) for name, _, value in pairs]
    return tuple(found)


def value(found: Iterable[Setting], name: str) -> str:
    """Return the value of a setting; empty if it is not set. Of several, return the last, as Slurm does."""
    return next((each.value for each in reversed(tuple(found)) if each.name == name.lower()), "")


def fragment_lines(text: str) -> dict[str, str]:
    """Return name -> value of the lines in our fragment."""
    return dict(line.split("=", 1) for line in text.splitlines() if line and not line.startswith("#"))


def missing(has: str, should: str) -> list[str]:
    """Return the words of the list `should` that the list `has` lacks. Ignore case, and `job_submit/` in `has`."""
    known = {word.lower().removeprefix("job_submit/") for word in words(has)}
    return [word for word in words(should) if word.lower() not in known]


def joined(has: str, should: str) -> str:
    """Return the list `has` with the words of `should` that it lacks; `should` itself if that is a number."""
    if should.isdigit():
        return should
    lacks = missing(has, should)
    return ",".join([*words(has), *lacks]) if lacks else has


def words(text: str) -> list[str]:
    """Return the items of a list separated by commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def without(text: str) -> str:
    """Return the text without our block, with the site's lines restored. Raise DamagedError if the block has no end."""
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
    """Remove the lines of a setting, or replace them by `line`. The numbers of later lines change."""
    lines = _lines(text)
    return "".join([*lines[: setting.first], *([f"{line}\n"] if line else []), *lines[setting.end :]])


def with_block(text: str, wanted: Mapping[str, str], obsolete: Iterable[Setting]) -> str:
    """Add our block with `wanted` at the end, and turn the `obsolete` settings into comments."""
    lines = _lines(text)
    for setting in obsolete:
        for number in range(setting.first, setting.end):
            lines[number] = MARK + lines[number].removeprefix(MARK)
    if not wanted:
        return "".join(lines)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    return "".join([*lines, f"{BEGIN}\n", *(f"{name}={given}\n" for name, given in wanted.items()), f"{END}\n"])


def _lines(text: str) -> list[str]:
    """Return the lines with their ends. Unlike splitlines(), do not split at a form feed."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _pairs(line: str) -> list[tuple[str, str, str]]:
    found, at = [], 0
    while pair := _PAIR.match(line, at):
        found.append((pair[1], pair[2], pair[4] if pair[3] is None else pair[3]))
        at = pair.end()
    return found


def _logical(text: str) -> Iterable[tuple[int, int, str]]:
    """Yield each line without comments and joined with its continuations, as (first, last + 1, text)."""
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
