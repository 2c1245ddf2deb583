"""`inodes root|shm|cache|paths`: of the inodes of a file system, a share must be free.

A file system without a free inode takes no new file, however much space it has. One that makes inodes as it needs them
(btrfs) says that it has 0 of them (statvfs(3), f_files) and cannot run out.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from prechecks import disk
from prechecks.check import Check
from prechecks.setting import SHARE, Setting
from prechecks.verdict import FAILED, NODE_PROBLEM, OK, Context, Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Inodes(Check):
    """One file system. Its threshold, from 0 to 1, is `settings["inodes"][name]`; null: not checked on this site."""

    section = "inodes"
    settings: Mapping[str, Setting] = {
        "root": Setting(SHARE, 0.01, "a larger share of inodes on / must be free; null: not checked", optional=True),
        "shm": Setting(SHARE, 0.01, "the same on /dev/shm", optional=True),
        "cache": Setting(SHARE, 0.01, "the same on /cache", optional=True),
        "paths": Setting(SHARE, 0.01, "the same on each of disk-size.paths", optional=True),
    }
    problem = NODE_PROBLEM
    condition = "no threshold on this site"
    quick = True
    passing = True

    def __init__(self, name: str, path: str) -> None:
        self.item = f"inodes.{name}"
        self.looks_at = f"inodes that users can still take on `{path}`"
        self.name = name
        self.path = path

    def applies(self, context: Context, settings: Mapping[str, Any]) -> bool:
        """Wherever the site sets a threshold."""
        return self.own(settings).get(self.name) is not None

    def look(self, context: Context, settings: Mapping[str, Any]) -> Finding:
        """A greater share is free than the threshold."""
        return judge(inodes(self.path), self.own(settings)[self.name])


class InodesPaths(Check):
    """All of `settings["disk-size"]["paths"]`, one after the other. Shared, as prechecks.disk.DiskSizePaths is."""

    item = "inodes.paths"
    looks_at = "inodes that users can still take on the paths of `disk-size.paths`"
    section = "inodes"
    settings = Inodes.settings
    problem = NODE_PROBLEM
    shared = True
    condition = "no further paths on this site, or no threshold"

    def applies(self, context: Context, settings: Mapping[str, Any]) -> bool:
        """Wherever the site names some, unless it wants no share of them."""
        named = settings.get("disk-size", {}).get("paths")
        return bool(named) and self.own(settings).get("paths") is not None

    def look(self, context: Context, settings: Mapping[str, Any]) -> Finding:
        """A greater share is free on each."""
        share = self.own(settings)["paths"]
        return disk.look_at_all(self, settings["disk-size"]["paths"], lambda path, _: judge(inodes(path), share))


def inodes(path: str) -> tuple[int, int] | None:
    """Inodes that a user without privileges can still take, and all; None without `path`. May hang on a dead mount."""
    try:
        found = os.statvfs(path)
    except FileNotFoundError:
        return None
    return found.f_favail, found.f_files


def judge(found: tuple[int, int] | None, threshold: float) -> Finding:
    """`40 of 16777216 inodes free, 0.00 %, not more than 1 %` fails. No directory passes: `disk-size` says that."""
    if found is None:
        return Finding(OK, "no such directory", None, threshold)
    free, every = found
    if every == 0:
        return Finding(OK, "a file system without a number of inodes", None, threshold)
    message = f"{free} of {every} inodes free"
    if free > threshold * every:
        return Finding(OK, message, free, threshold)
    return Finding(FAILED, f"{message}; more than {threshold * 100:g} % must be", free, threshold)
