"""What an item has seen of this boot already: a few plain values, in `<state>/<item>.json`.

Root's own, written whole or not at all; no link is followed. `boot` is /proc/sys/kernel/random/boot_id
(Documentation/admin-guide/sysctl/kernel.rst): what another boot has seen is forgotten.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

BOOT_ID = "/proc/sys/kernel/random/boot_id"
MAX_CHARACTERS = 1 << 16
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FRESH_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def load(state: str, item: str) -> dict[str, Any]:
    """What `save` was given in this boot; empty where nothing was, or the file is not ours or not whole.

    `state` is the directory. Raises PermissionError where it is not this user's own.
    """
    try:
        directory = _open(state)
    except FileNotFoundError:
        return {}
    try:
        file = os.open(f"{item}.json", _FILE, dir_fd=directory)
    except OSError:  # none, or a link, which the next `save` replaces
        return {}
    finally:
        os.close(directory)
    with os.fdopen(file, encoding="utf-8", errors="replace") as stream:
        text = stream.read(MAX_CHARACTERS) if os.fstat(file).st_uid == os.geteuid() else ""
    try:
        found = json.loads(text)
        return dict(found["values"]) if found["boot"] == _boot() else {}
    except (ValueError, TypeError, KeyError):
        return {}


def save(state: str, item: str, values: Mapping[str, Any]) -> None:
    """Put these values in the place of those before; of several at once the last one's stay. Raises OSError."""
    above = os.path.dirname(state)  # noqa: PTH120 - as in prechecks.gpu
    if not os.path.isdir(above):  # noqa: PTH112
        os.makedirs(above, exist_ok=True)  # noqa: PTH103
        os.chmod(above, 0o755)  # noqa: PTH101, S103 - whatever the umask was: tasks find their file in there
    with suppress(FileExistsError):
        os.mkdir(state, 0o755)  # noqa: PTH102
    directory = _open(state)
    try:
        fresh = f".{item}.{os.getpid()}"
        with suppress(FileNotFoundError):
            os.unlink(fresh, dir_fd=directory)  # of one of this number that was killed there
        with os.fdopen(os.open(fresh, _FRESH_FILE, 0o644, dir_fd=directory), "w", encoding="utf-8") as stream:
            json.dump({"boot": _boot(), "values": values}, stream)
        os.rename(fresh, f"{item}.json", src_dir_fd=directory, dst_dir_fd=directory)
    finally:
        os.close(directory)


def _open(state: str) -> int:
    """The open directory; refused where it is a link, or where others own or may write it."""
    directory = os.open(state, _DIRECTORY)
    found = os.fstat(directory)
    if found.st_uid != os.geteuid() or found.st_mode & 0o022:
        os.close(directory)
        raise PermissionError(f"{state}: not root's own; remove it")
    return directory


def _boot() -> str:
    with open(BOOT_ID, encoding="ascii") as file:  # noqa: PTH123 - as in prechecks.gpu
        return file.read().strip()
