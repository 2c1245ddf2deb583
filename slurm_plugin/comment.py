"""A node's Comment: an administrator's words, and beside them what we write there in brackets. Pure."""

import re


def without(ours: re.Pattern[str], comment: str) -> str:
    """A comment without a text of ours and the blank before it; words behind one that came first then come first."""
    rest = ours.sub("", comment)
    return rest if ours.match(comment) is None else rest.lstrip(" ")
