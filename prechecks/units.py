"""Sizes and comparisons as people read them."""

from __future__ import annotations

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")  # binary, as `df -h` counts


def size(count: int) -> str:
    """Bytes in the largest unit that leaves at least 1, with one decimal at most, rounded down: 1610612736 -> 1.5 GB.

    Down, so that a size just under a threshold does not read as the threshold itself.
    """
    unit = min((max(count, 1).bit_length() - 1) // 10, len(_UNITS) - 1)
    whole, tenth = divmod(count * 10 // 1024**unit, 10)
    return f"{whole}.{tenth} {_UNITS[unit]}" if tenth else f"{whole} {_UNITS[unit]}"


def compare(value: int, threshold: int) -> str:
    """How a value stands to the threshold that it must pass: `>`, `<`, or `not >` where they are equal."""
    if value == threshold:
        return "not >"
    return ">" if value > threshold else "<"


def compare_sizes(value: int, threshold: int) -> str:
    """Two sizes and how they stand, `512 MB < 1 GB`; in bytes where the short forms would look alike."""
    left, right = size(value), size(threshold)
    if left == right and value != threshold:
        left, right = f"{value} B", f"{threshold} B"
    return f"{left} {compare(value, threshold)} {right}"
