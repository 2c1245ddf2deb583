"""Slurm's node lists, `n[08-11],tux[2,1-2]`, to names and back, with every name in its place.

Task counts (`SLURM_TASKS_PER_NODE`) follow the node list's own order, so order and doubles are kept: libraries that
sort names or drop doubles break that alignment. An empty or malformed list is an error, never a shorter list.

The form is the one of `scontrol show hostnames` (hostlist_create in Slurm's source), and a text behind brackets
(`n[1-2]-ib0`), which Slurm's own tools refuse and sites write all the same.

Read without `re`, which a prolog on every node of every job would load for this alone, at 8 ms.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from math import prod
from operator import itemgetter

from hostfiles.errors import HostfileError

TYPE_CHECKING = False  # as in `typing`, which would cost a prolog 3 ms (see hostfiles.allocation)
if TYPE_CHECKING:
    from typing import Final, Never

MAX_NAMES: Final = 1 << 20  # far above any cluster; keeps `n[0-999999999]` from filling the memory
SLURM_MAX_RANGE: Final = 1 << 16  # names in one range; scontrol: "Too many hosts in range"
_SLURM_MAX_DIGITS: Final = 15  # scontrol counts in an unsigned long

_MAX_COUNT_DIGITS: Final = 9
_CHARACTERS: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
_PLAIN: Final = _CHARACTERS | {","}


def is_name(text: str) -> bool:
    """Whether `text` can be one host's name: ASCII letters, digits, `.`, `_` and `-`, not beginning with `-`."""
    return bool(text) and text[0] != "-" and _CHARACTERS.issuperset(text)  # a leading - would read as an option


def _is_plain(text: str) -> bool:
    """Whether `text` is names and commas alone. A few passes over it, however many names there are."""
    between = f",{text},"
    return _PLAIN.issuperset(text) and ",," not in between and ",-" not in between


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def expand(text: str) -> list[str]:
    """Every name of a node list, in its order, doubles included.

    With several brackets in a name the last one varies fastest. Raises HostfileError saying what was found where
    (characters count from 1).
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


def _items(text: str) -> Iterator[tuple[list[list[str]], int]]:
    """Each comma-separated item as the choices of its parts, `n[1-2]-ib` -> [[n], [1, 2], [-ib]], and its place."""
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
    """The digit strings of what stands in one pair of brackets, `08-11,2` -> 08 09 10 11 2."""
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
        "]": "a ']' that closes nothing",
        ":": "a ':', which no host's name has (an IPv6 address has no form in a hostfile)",
    }
    return known.get(character) or f"the character {character!r}"


def _refuse(text: str, at: int, what: str) -> Never:
    shown = text if len(text) <= 60 else f"{text[:40]}...{text[-10:]}"
    raise HostfileError(f"node list {shown!r}, character {at + 1}: {what}; a node list reads n[08-11],gpu1")


def fold(names: Sequence[str]) -> str:
    """The short node list of `names`: `expand(fold(names)) == list(names)`, always.

    Only the digits that end a name are folded, for then `scontrol show hostnames` reads the same names: it refuses
    text behind brackets. Raises HostfileError for no names and for what is not a host's name.
    """
    if not names:
        raise HostfileError("no names to fold into a node list")
    whole = ",".join(names)
    if not _is_plain(whole) or whole.count(",") != len(names) - 1:  # all at once, as in expand
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
    """Neighbours whose last numbers count up by one: the text before them, whether there is a number, and the range.

    A range has the width of its first number: 9 10 and 09 10 are one each, 9 010 and 009 10 are not.
    """
    shared = first = last = ""
    following = end = width = -1
    for name in names:
        prefix = name.rstrip("0123456789")
        digits = name[len(prefix) :]
        size = len(digits)
        if size > _SLURM_MAX_DIGITS:
            prefix, digits, size = name[:-_SLURM_MAX_DIGITS], digits[-_SLURM_MAX_DIGITS:], _SLURM_MAX_DIGITS
        number = int(digits) if size else -2  # no number follows on -2, and -2 on none
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
    """One count a node from Slurm's short form, as in SLURM_TASKS_PER_NODE: `4(x2),2` -> 4, 4, 2.

    Raises HostfileError for any other form, and for a count or a repetition of 0.
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
