"""Reading sysfs: one value a file (Documentation/filesystems/sysfs.rst), which may be gone or unknown at any time."""

from __future__ import annotations

import os


def text(path: str) -> str | None:
    """The value in a file; None where it cannot be had: no such file, or the driver answers with an error.

    A driver does so for what has no value now: `carrier` and `speed` of an interface that is down are EINVAL, and so
    are counters of a port without a performance agent. May hang while a driver waits for its device.
    """
    try:
        with open(path, encoding="ascii", errors="replace") as file:  # noqa: PTH123 - as in prechecks.gpu
            return file.read().strip()
    except OSError:
        return None


def number(found: str | None) -> int | None:
    """The whole number in a value; None for none, as `N/A (no PMA)` is."""
    try:
        return int(found or "")
    except ValueError:
        return None


def entries(directory: str) -> list[str]:
    """The names in a directory, `mlx5_2` before `mlx5_10`; none where there is no such directory."""
    try:
        return sorted(os.listdir(directory), key=lambda name: (len(name), name))  # noqa: PTH208 - as in prechecks.gpu
    except FileNotFoundError:
        return []
