"""Format values as text on one line, and text in columns and colours. Pure."""

import json
import math
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from slurm_plugin.errors import printable

CODES: Mapping[str, str] = {"bold": "1", "dim": "2", "red": "1;31", "green": "32", "yellow": "33"}
LEAST_LAST = 22  # characters of the last column for which a narrow terminal gives up other columns
GAP = 2
CUT = "+"  # ends a text that is cut off, as in sacct


def paint(text: str, colour: str, *, on: bool) -> str:
    """Return the text in a colour of CODES; unchanged if `colour` is empty or `on` is false."""
    return f"\x1b[{CODES[colour]}m{text}\x1b[0m" if on and colour else text


def counted(number: int, what: str) -> str:
    """Return `1 node`, `2 nodes`."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def width_of(text: str) -> int:
    """Return how many columns of a terminal a text takes: wide characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(
        2 if unicodedata.east_asian_width(char) in "WF" else 0 if unicodedata.combining(char) else 1 for char in text
    )


def widest(texts: Sequence[str]) -> int:
    """Return the width of the widest text."""
    return max(map(len if "".join(texts).isascii() else width_of, texts))


def _padded(column: Sequence[str]) -> list[str]:
    size = widest(column)
    return [cell.ljust(size) if cell.isascii() else cell + " " * (size - width_of(cell)) for cell in column]


def columns(rows: Sequence[Sequence[str]], paints: Sequence[Sequence[str]] = (), *, on: bool = False) -> list[str]:
    """Return rows of cells as lines. Each column but the last is as wide as its widest cell.

    `paints`: the colour of each cell.
    """
    if not rows:
        return []
    *cells, last = zip(*rows, strict=True)  # by column: lists of thousands of rows take a third of the time
    padded = [*map(_padded, cells), last]
    if on and paints:
        painted = zip(padded, zip(*paints, strict=True), strict=True)
        padded = [[paint(*each, on=on) for each in zip(column, colours, strict=True)] for column, colours in painted]
    return ["  ".join(row).rstrip() for row in zip(*padded, strict=True)]


def fitted(
    rows: Sequence[Sequence[str]],
    paints: Sequence[Sequence[str]],
    *,
    width: int = 0,
    optional: Sequence[str] = (),
    without: Collection[str] = (),
    on: bool = False,
) -> list[str]:
    """Return a table, of which the first row is the head, that is at most `width` wide (0 for any).

    Leave out the columns of `without`, then those of `optional`, in this order, until the last column has LEAST_LAST
    characters, or what it needs. Then cut the last column.
    """
    dropped = set(without)
    sizes = [*map(widest, zip(*rows, strict=True))]
    for name in ("", *optional):
        dropped.add(name)
        kept = [place for place, title in enumerate(rows[0]) if title not in dropped]
        left = width - sum(sizes[place] + GAP for place in kept[:-1]) if width else sizes[kept[-1]]
        if left >= min(LEAST_LAST, sizes[kept[-1]]):
            break
    cells = [[row[place] for place in kept[:-1]] + [cut(row[kept[-1]], max(left, 1))] for row in rows]
    return columns(cells, [[row[place] for place in kept] for row in paints], on=on)


def cut(text: str, most: int) -> str:
    """Return a text that takes at most `most` columns of a terminal, with CUT in place of the rest."""
    if width_of(text) <= most:
        return text
    text = text[: most - 1]
    while text and width_of(text) >= most:
        text = text[:-1]
    return text + CUT


LONGEST_VALUE: Final = 80  # characters of a value


def finite(value: object) -> float | None:
    """Return a number as a float; None for anything else, and for NaN and infinity."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def shown(value: object, longest: int = LONGEST_VALUE) -> str:
    """Return any value as one printable line: numbers with six digits, other values as in JSON."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if value is None:
        return ""
    if isinstance(value, str):
        text = value
    else:
        try:
            text = json.dumps(value, default=str, ensure_ascii=False)
        except (ValueError, RecursionError):
            text = "?"
    text = printable(text)
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
