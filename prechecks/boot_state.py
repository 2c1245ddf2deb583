"""Keep plain values on a node until its next boot, in `<run directory>/state/<item>.json`.

A file contains `values`, and in `boot` the id of the boot in which they were stored: /proc/sys/kernel/random/boot_id
(Documentation/admin-guide/sysctl/kernel.rst). Root replaces the file atomically. Users may read it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from prechecks import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

BOOT_ID = "/proc/sys/kernel/random/boot_id"
MAX_CHARACTERS = 1 << 20  # 13 samples of 8 counters of 8 ports are 30 kB
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def load(state: str, item: str) -> dict[str, Any]:
    """Return the values that `save` stored since the boot. `state` is the state directory.

    Return an empty dict if nothing was stored, and if the file is malformed or not owned by root. Raise OSError if the
    directory is a link, or if neither root nor this user owns it.
    """
    try:
        directory = open_directory(state, make=False)
    except FileNotFoundError:
        return {}
    with files.Opened(directory):
        text = _read(directory, f"{item}.json")
    try:
        found = json.loads(text)
        return dict(found["values"]) if found["boot"] == boot_id() else {}
    except (ValueError, TypeError, KeyError):
        return {}


def save(state: str, item: str, values: Mapping[str, Any]) -> None:
    """Replace the stored values. If several processes save, the last one wins. Raise OSError on failure."""
    with files.Opened(open_directory(state, make=True)) as directory:
        files.replace(f"{item}.json", json.dumps({"boot": boot_id(), "values": values}), directory=directory)


def boot_id() -> str:
    """Return the id of this boot."""
    with open(BOOT_ID, encoding="ascii") as file:  # noqa: PTH123 - as in prechecks.checks.gpu
        return file.read().strip()


def open_directory(state: str, *, make: bool) -> int:
    """Open the state directory. Raise OSError if it or its parent is a link or owned by neither root nor this user."""
    run_directory, _, name = state.rpartition("/")
    return files.open_directory(run_directory, [(name, 0o755)], make=make)


def _read(directory: int, file: str) -> str:
    """Return the text of a file; empty if it is missing, a link, or not owned by root. `save` replaces a link."""
    try:
        fd = os.open(file, _FILE, dir_fd=directory)
    except OSError:
        return ""
    with os.fdopen(fd, encoding="utf-8", errors="replace") as stream:
        return "" if os.fstat(fd).st_uid else stream.read(MAX_CHARACTERS)
