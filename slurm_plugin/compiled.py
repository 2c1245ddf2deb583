"""The compiled site file: what hooks and jobs read in place of the YAML. Standard library only."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # as in `typing`; it and `pathlib` would cost a prolog 7 ms
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Final

VERSION: Final = 1
FILE: Final = "compiled.json"
ARCHIVE: Final = "slurm_plugin.pyz"  # the code (slurm_plugin/archive.py)
LOCAL: Final = "/etc/"  # where neither a user nor a file server can have root wait
MAX_BYTES: Final = 1 << 20  # of a site file
DEFAULT_ROOT: Final = "/etc/slurm/slurm_plugin"
KILL_SWITCH: Final = "DISABLED"  # while this file stands beside it, nothing of ours acts


def site_root() -> str:
    """The site directory this code was deployed in: where the zip stands that Python imports from.

    A guard names that by its open descriptor: whoever runs goes on with it when another takes its place.
    """
    return os.path.dirname(os.path.realpath(sys.path[0]))  # noqa: PTH120


def read(root: str) -> dict[str, Any]:
    """The settings compiled into `root`.

    Raises OSError where the file is missing, ValueError where it is not ours or of another version.
    """
    from prechecks import quickjson  # noqa: PLC0415 - whoever reads settings has that package anyway

    path = f"{root}/{FILE}"
    with open(path, encoding="utf-8") as file:  # noqa: PTH123
        settings = quickjson.loads(file.read())
    if not isinstance(settings, dict) or settings.get("v") != VERSION:
        raise ValueError(f"{path}: not a version {VERSION} file; run: slurm-plugin site install --apply")
    return settings


def fingerprint(path: str) -> int | None:
    """What tells one site file from another; None where there is no plain file that can be read."""
    from binascii import crc32  # noqa: PLC0415 - a C module that is part of most interpreters
    from stat import S_ISREG  # noqa: PLC0415 - the same

    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(fd, "rb") as file:
        return crc32(file.read(MAX_BYTES)) if S_ISREG(os.fstat(fd).st_mode) else None


def stale(settings: Mapping[str, Any], *, anywhere: bool = False) -> str:
    """What to log where the site file on this node is another than was compiled; empty where it is that, or not here.

    Its times are not compared: a copy has its own. Root asks in every prolog, so only below LOCAL; people `anywhere`.
    """
    known: dict[str, Any] = settings.get("site_file") or {}
    here = fingerprint(known["path"]) if known and (anywhere or str(known["path"]).startswith(LOCAL)) else None
    if here is None or here == known["crc32"]:
        return ""
    return f"{known['path']} was changed since it was deployed; run: slurm-plugin site install --apply"
