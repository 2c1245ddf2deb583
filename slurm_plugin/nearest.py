"""The accepted word that somebody has probably meant. Standard library only: nodes have no more."""

from collections.abc import Iterable
from typing import Final

LONGEST: Final = 100  # characters of a word that are compared, which takes the square of that


def nearest(word: str, accepted: Iterable[str]) -> str:
    """The one that is most like this word, capitals or not; empty where none is."""
    import difflib  # noqa: PLC0415 - for what is wrong alone

    words = {each.lower(): each for each in accepted}
    return next((words[close] for close in difflib.get_close_matches(word[:LONGEST].lower(), words, n=1)), "")


def suggestion(word: str, accepted: Iterable[str]) -> str:
    """`; did you mean x?` behind a message, or nothing."""
    close = nearest(word, accepted)
    return f"; did you mean {close}?" if close else ""
