"""The lines of a log as people see them: who speaks, whose lines they are, and what was searched for. Pure."""

import re
from typing import Final

from slurm_plugin.logs.reader import Entry
from slurm_plugin.views.columns import paint

_UNITS: Final = ("B", "KB", "MB", "GB", "TB")
_PYTHONS = re.compile(r"\[\^?\]?(?:\\.|[^]\\])*\]|\\.|\(\?:|[*+?}]\?")  # parts of an expression that less may not know


def line(found: Entry, *, on: bool, pattern: re.Pattern[str] | None = None) -> str:
    """Return a line of one log. `on`: in colours; `pattern`: what to highlight."""
    return _painted(found, found.label + found.text, on=on, pattern=pattern)


def speaker_line(speaker: str, found: Entry, width: int, *, on: bool, pattern: re.Pattern[str] | None = None) -> str:
    """Return a line of several logs, with a column for who speaks."""
    return f"{paint(speaker.rjust(width), 'dim', on=on)} | {_painted(found, found.text, on=on, pattern=pattern)}"


def _painted(found: Entry, text: str, *, on: bool, pattern: re.Pattern[str] | None) -> str:
    if not on:
        return text
    if pattern and pattern.search(text):
        return pattern.sub(_marked, text)
    return paint(text, "dim" if found.system else "", on=True)


def _marked(found: re.Match[str]) -> str:
    return paint(found[0], "red", on=True) if found[0] else ""


def size(count: int) -> str:
    """Return a number of bytes as `12 KB`, `2.1 GB`."""
    number, unit = float(count), 0
    while number >= 1024 and unit < len(_UNITS) - 1:
        number, unit = number / 1024, unit + 1
    return f"{number:.{1 if unit > 1 else 0}f} {_UNITS[unit]}"


def pager(words: list[str], pattern: str) -> list[str]:
    """Return the command of a pager that shows colours and steps through the matches."""
    if words[0].rpartition("/")[2] != "less":
        return words
    case = ["-I"] if pattern.startswith("(?i)") else []
    pattern = _PYTHONS.sub(_posix, pattern.removeprefix("(?i)"))
    # less takes some characters at the beginning of a pattern as its own commands.
    return [*words, "-R", *case, f"+/{chr(92) if pattern[:1] in ('!', '@', '&') else ''}{pattern}"]


def _posix(found: re.Match[str]) -> str:
    """Return a part of a regular expression as less reads it: mostly POSIX's, without Python's shorthands."""
    text = found[0]
    if text.startswith("["):
        return text.replace(r"\d", "0-9").replace(r"\s", "[:space:]").replace(r"\w", "[:alnum:]_")
    return {r"\d": "[0-9]", r"\D": "[^0-9]", "(?:": "("}.get(text, text[0] if text[0] in "*+?}" else text)
