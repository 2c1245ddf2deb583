"""`inodes root|shm|cache|paths`: a share of the inodes of a file system must be free.

A file system without a free inode accepts no new file, even if it has space. A file system that creates inodes on
demand (btrfs) reports 0 inodes (statvfs(3), f_files) and cannot run out of inodes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from prechecks.check import SHARE, Setting, Settings
from prechecks.checks import disk
from prechecks.verdict import FAILED, OK, SKIPPED, Context, Finding


class Inodes(disk.FileSystem):
    """Read a threshold, from 0 to 1, from `settings["inodes"]`."""

    section = "inodes"
    measured = "inodes that users can still take"
    settings: Mapping[str, Setting] = {
        "root": Setting(SHARE, 0.01, "a larger share of inodes on / must be free; null: not checked", optional=True),
        "shm": Setting(SHARE, 0.01, "the same on /dev/shm", optional=True),
        "cache": Setting(SHARE, 0.01, "the same on /cache", optional=True),
        "paths": Setting(SHARE, 0.01, "the same on each of disk-size.paths", optional=True),
    }

    def look(self, context: Context, settings: Settings) -> Finding:
        """Fail unless the free share is greater than the threshold. Skip an unusable path unless it is required."""
        if not self.required(settings) and (why := disk.unusable_reason(disk.measure(self.path))):
            return Finding(SKIPPED, why)
        return judge(inodes(self.path), self.own(settings)[self.name])


class InodesPaths(disk.FurtherPaths):
    """Read `settings["inodes"]["paths"]`, a threshold for all paths of `disk-size.paths`."""

    item = "inodes.paths"
    looks_at = "inodes that users can still take on the paths of `disk-size.paths`"
    section = "inodes"
    settings = Inodes.settings
    condition = "no further paths on this site, or no threshold"

    def applies(self, context: Context, settings: Settings) -> bool:
        """Return whether the site names paths and sets a threshold."""
        return bool(settings.get("disk-size", {}).get("paths")) and super().applies(context, settings)

    def look(self, context: Context, settings: Settings) -> Finding:
        """Fail unless the free share on each path is greater than the threshold."""
        share = self.own(settings)["paths"]
        return self.look_at_all(settings, lambda path, _: judge(inodes(path), share))


def inodes(path: str) -> tuple[int, int] | None:
    """Return the inodes that users can take, and all inodes; None if `path` is missing. May hang on a dead mount."""
    try:
        found = os.statvfs(path)
    except FileNotFoundError:
        return None
    return found.f_favail, found.f_files


def judge(found: tuple[int, int] | None, threshold: float) -> Finding:
    """Fail with `40 of 16777216 inodes free; ...`. A missing directory passes: `disk-size` reports it."""
    if found is None:
        return Finding(OK, "no such directory", None, threshold)
    free, every = found
    if every == 0:
        return Finding(OK, "a file system without inode counts", None, threshold)
    message = f"{free} of {every} inodes free"
    if free > threshold * every:
        return Finding(OK, message, free, threshold)
    return Finding(FAILED, f"{message}; more than {threshold * 100:g} % must be", free, threshold)
