"""Suggest the accepted word that a user probably meant. Standard library only: nodes have no other packages.

A suggestion differs from the word by a typing error, or by a missing beginning or end. A word that is only similar
(`conda`, `command`) would mislead.
"""

from collections.abc import Iterable
from typing import Final

TRUTH: Final = {"true": "yes", "false": "no"}  # JSON's values, which many users write in YAML
LONGEST: Final = 100  # characters of a word that are compared; the time is quadratic
SHORTEST: Final = 3  # of words up to this length, one must be the beginning of the other: many differ by one letter
LONG: Final = 7  # a word of at least this length may have two wrong letters, but not the first one
MORE: Final = 2  # most letters by which two words may differ in length


def nearest(word: str, accepted: Iterable[str]) -> str:
    """Return the nearest accepted word, ignoring case; empty if none is near."""
    word = word[:LONGEST].lower()
    ranked = ((_distance(word, each.lower()), each) for each in accepted)
    found = min(((distance, each) for distance, each in ranked if distance is not None), default=None)
    return found[1] if found else ""


def suggestion(word: str, accepted: Iterable[str]) -> str:
    """Return `; did you mean x?` for the end of a message, or an empty text."""
    close = nearest(word, accepted)
    return f"; did you mean {close}?" if close else ""


def _distance(word: str, other: str) -> int | None:
    """Return the distance of two words, 0 to 3; None if they are not near."""
    shorter, longer = sorted((word, other), key=len)
    if word == other:
        return 0
    if not shorter:
        return None
    if len(longer) - len(shorter) <= MORE:
        edits = _edits(word, other)
        if edits == 1 and (len(longer) > SHORTEST or longer.startswith(shorter)):
            return 1
        ends = longer.startswith(shorter) or longer.endswith(shorter)
        if ends or (edits == 2 and len(longer) >= LONG and word[0] == other[0]):
            return 2
    return 3 if len(word) >= SHORTEST and other.startswith(word) else None


def _edits(word: str, other: str) -> int:
    """Return the number of letters that are wrong, missing, superfluous, or swapped with a neighbour."""
    before, last = [0] * (len(other) + 1), list(range(len(other) + 1))
    for row, letter in enumerate(word, 1):
        line = [row]
        for column, each in enumerate(other, 1):
            best = min(last[column] + 1, line[-1] + 1, last[column - 1] + (letter != each))
            if row > 1 and column > 1 and letter == other[column - 2] and word[row - 2] == each:
                best = min(best, before[column - 2] + 1)
            line.append(best)
        before, last = last, line
    return last[-1]
