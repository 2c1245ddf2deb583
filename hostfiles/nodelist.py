"""Convert Slurm's node lists, `n[08-11],tux[2,1-2]`, to names and back.

Order and duplicates are kept, because task counts (`SLURM_TASKS_PER_NODE`) follow the order of the node list. If a
library sorts names or drops duplicates, the counts no longer match. An empty or malformed list is always an error.

The syntax is that of `scontrol show hostnames` (hostlist_create in Slurm's source). Text after brackets (`n[1-2]-ib0`)
is also accepted: Slurm's own tools refuse it, but sites use it.

This module does not import `re`: the import would take a prolog 8 ms on every node of every job.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from math import prod
from operator import itemgetter

TYPE_CHECKING = False  # as in `typing`, whose import would take a prolog 3 ms
if TYPE_CHECKING:
    from typing import Final, Never

MAX_NAMES: Final = 1 << 20  # larger than any cluster; prevents that `n[0-999999999]` fills the memory
SLURM_MAX_RANGE: Final = 1 << 16  # names in one range; scontrol: "Too many hosts in range"
_SLURM_MAX_DIGITS: Final = 15  # scontrol reads a number as an unsigned long

_MAX_COUNT_DIGITS: Final = 9
_CHARACTERS: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
_PLAIN: Final = _CHARACTERS | {","}


class HostfileError(ValueError):
    """A node list, a count or an allocation that cannot become a correct hostfile."""


def is_name(text: str) -> bool:
    """Return whether `text` is a valid host name: ASCII letters, digits, `.`, `_` and `-`, not beginning with `-`."""
    return bool(text) and text[0] != "-" and _CHARACTERS.issuperset(text)  # commands take a leading - as an option


def _is_plain(text: str) -> bool:
    """Return whether `text` is only names and commas. This needs no Python loop over the names."""
    between = f",{text},"
    return _PLAIN.issuperset(text) and ",," not in between and ",-" not in between


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def expand(text: str) -> list[str]:
    """Return every name of a node list, in order, with duplicates.

    If a name has several brackets, the last bracket varies fastest. Raise HostfileError with the problem and its
    position (characters count from 1).
    """
    if _is_plain(text):  # the common case: 100,000 plain names cost a few passes and one split
        return text.split(",")
    names: list[str] = []
    for parts, at in _items(text):
        if len(names) + prod(map(len, parts)) > MAX_NAMES:
            _refuse(text, at, f"more than {MAX_NAMES} names")
        found = parts[0]
        for part in parts[1:]:
            found = [head + tail for head in found for tail in part]
        if found[0].startswith("-"):
            _refuse(text, at, f"a name that begins with '-': {found[0]!r}")
        names += found
    return names


def names(text: str) -> list[str]:
    """Return every name of a node list, as `expand` does; nothing for an empty or malformed list."""
    try:
        return expand(text)
    except HostfileError:
        return []


def _items(text: str) -> Iterator[tuple[list[list[str]], int]]:
    """Yield the choices of each part of an item, `n[1-2]-ib` -> [[n], [1, 2], [-ib]], and the item's position."""
    parts: list[list[str]] = []
    start = at = 0
    while at < len(text):
        end = at + 1
        if text[at] in _CHARACTERS:
            while end < len(text) and text[end] in _CHARACTERS:
                end += 1
            parts.append([text[at:end]])
        elif text[at] == ",":
            if not parts:
                _refuse(text, at, "an empty name")
            yield parts, start
            parts, start = [], end
        else:
            end = text.find("]", at) + 1
            if text[at] != "[" or not end or "[" in text[at + 1 : end]:
                _refuse(text, at, _unexpected(text[at]))
            parts.append(_numbers(text, text[at + 1 : end - 1], at + 1))
        at = end
    if not parts:
        _refuse(text, at, "an empty name")
    yield parts, start


def _numbers(text: str, ranges: str, at: int) -> list[str]:
    """Return the digit strings of one pair of brackets, `08-11,2` -> 08 09 10 11 2."""
    numbers: list[str] = []
    for part in ranges.split(","):
        first, dash, last = part.partition("-")
        last = last if dash else first
        if not _is_number(first) or not _is_number(last):
            _refuse(text, at, f"{part!r} in brackets, where a number or a range such as 1-4 is wanted")
        if max(len(first), len(last)) > _SLURM_MAX_DIGITS:
            _refuse(text, at, f"a number of more than {_SLURM_MAX_DIGITS} digits")
        low, high, width = int(first), int(last), len(first)
        if high < low:
            _refuse(text, at, f"the range {part!r} runs backwards")
        if len(numbers) + high - low >= MAX_NAMES:
            _refuse(text, at, f"more than {MAX_NAMES} names")
        if first[0] == "0" and width > 1:
            numbers += [str(number).zfill(width) for number in range(low, high + 1)]
        else:
            numbers += map(str, range(low, high + 1))
        at += len(part) + 1
    return numbers


def _unexpected(character: str) -> str:
    known = {
        "[": "a '[' that is not closed",
        "]": "a ']' without a '['",
        ":": "a ':', which no host's name has (an IPv6 address has no form in a hostfile)",
    }
    return known.get(character) or f"the character {character!r}"


def _refuse(text: str, at: int, what: str) -> Never:
    shown = text if len(text) <= 60 else f"{text[:40]}...{text[-10:]}"
    raise HostfileError(f"node list {shown!r}, character {at + 1}: {what}; a node list reads n[08-11],gpu1")


def fold(names: Sequence[str]) -> str:
    """Return the short node list of `names`. `expand(fold(names)) == list(names)` is always true.

    Only the digits at the end of a name are folded: `scontrol show hostnames` refuses text after brackets. Raise
    HostfileError if there are no names, and for an invalid name.
    """
    if not names:
        raise HostfileError("no names to fold into a node list")
    whole = ",".join(names)
    if not _is_plain(whole) or whole.count(",") != len(names) - 1:  # checks all names in a few passes
        wrong = next(name for name in names if not is_name(name))
        raise HostfileError(f"{wrong!r} is no host name; letters, digits, '.', '_' and '-' make one")
    items: list[str] = []
    for (prefix, numbered), runs in groupby(_runs(names), key=itemgetter(0, 1)):
        ranges = [text for _, _, text in runs]
        if not numbered:
            items += [prefix] * len(ranges)
        elif len(ranges) == 1 and "-" not in ranges[0]:
            items.append(prefix + ranges[0])
        else:
            items.append(f"{prefix}[{','.join(ranges)}]")
    return ",".join(items)


def _runs(names: Sequence[str]) -> Iterator[tuple[str, bool, str]]:
    """Yield runs of names whose last numbers increase by one: prefix, whether there is a number, and range.

    The first number sets the width of a range. So `9, 10` and `09, 10` are ranges; `9, 010` and `009, 10` are not.
    """
    shared = first = last = ""
    following = end = width = -1
    for name in names:
        prefix = name.rstrip("0123456789")
        digits = name[len(prefix) :]
        size = len(digits)
        if size > _SLURM_MAX_DIGITS:
            prefix, digits, size = name[:-_SLURM_MAX_DIGITS], digits[-_SLURM_MAX_DIGITS:], _SLURM_MAX_DIGITS
        number = int(digits) if size else -2  # -2 never equals `following`, nor does any number equal -2 + 1
        fits = size == width or (size > width and digits[:1] != "0")
        if number == following and fits and prefix == shared and number < end:
            last = digits
        else:
            if width >= 0:
                yield shared, width > 0, first if first is last else f"{first}-{last}"
            shared, first, last, width = prefix, digits, digits, size
            end = number + SLURM_MAX_RANGE
        following = number + 1
    yield shared, width > 0, first if first is last else f"{first}-{last}"


def expand_counts(text: str) -> list[int]:
    """Return one count per node from Slurm's short form, as in SLURM_TASKS_PER_NODE: `4(x2),2` -> 4, 4, 2.

    Raise HostfileError for any other form, and for a count or a repetition of 0.
    """
    counts: list[int] = []
    for part in text.split(","):
        first, repeated, rest = part.partition("(x")
        again = rest.removesuffix(")") if repeated and rest.endswith(")") else "" if repeated else "1"
        fine = all(_is_number(text) and len(text) <= _MAX_COUNT_DIGITS for text in (first, again))
        count, times = (int(first), int(again)) if fine else (0, 0)
        if not count or not times or len(counts) + times > MAX_NAMES:
            raise HostfileError(f"{part!r} in the counts {text[:60]!r}; counts read 4(x2),2")
        counts += [count] * times
    return counts
