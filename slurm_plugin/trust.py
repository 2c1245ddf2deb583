"""Whether root may run what stands in a file: nobody else can change it, what it links to, or what stands above."""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False  # as in `typing`, which is too slow to import here (see slurm_plugin.compiled)
if TYPE_CHECKING:
    from collections.abc import Iterator


def exposed(*files: str) -> str:
    """The first of these absolute paths, or of the directories above one, that others than root can change; else empty.

    A sticky directory passes, as nobody takes a file of root's away there. Raises OSError where one is not there.
    """
    places = dict.fromkeys(place for file in files for path in (file, os.path.realpath(file)) for place in _up(path))
    for place in places:
        found = os.stat(place)  # noqa: PTH116 - pathlib costs a hook 5 ms
        others = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        sticky = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX
        if found.st_uid != 0 or (others and not sticky):
            return place
    return ""


def _up(path: str) -> Iterator[str]:
    """/a/b, /a and / of /a/b."""
    yield path
    while path not in ("/", ""):
        path = path.rpartition("/")[0] or "/"
        yield path
