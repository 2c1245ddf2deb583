"""`disk-size root|shm|cache|paths`: the space available to users must be more than the threshold.

The default thresholds are for large nodes. So that other nodes do not fail, a path that is missing or mounted read-only
is skipped, and on a small file system only a share of its size must be available. For file systems in `required`, the
thresholds apply unchanged.
"""

from __future__ import annotations

import os
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence

from prechecks.check import SIZE, SPACES, TEXTS, Check, Setting, Settings
from prechecks.verdict import FAILED, OK, SKIPPED, Context, Finding, compare_sizes

NAMES = ("root", "shm", "cache")
SMALL = 2  # times the threshold: on a smaller file system, only a share of its size must be available
SHARE = 20  # 1/20 of the size


class FileSystem(Check):
    """One file system. The setting with its name is the threshold; null: it is not checked."""

    measured: str  # the measured quantity, for `looks_at`
    transient = True
    condition = "no threshold on this site"
    quick = True

    def __init__(self, name: str, path: str) -> None:
        self.item = f"{self.section}.{name}"
        self.looks_at = f"{self.measured} on `{path}`"
        self.needs = (name,)
        self.name = name
        self.path = path

    def required(self, settings: Settings) -> bool:
        """Return whether the site requires this file system."""
        return self.name in settings.get("disk-size", {}).get("required", ())


class FurtherPaths(Check):
    """All paths of `disk-size.paths`, one after the other. `shared`: often a file system of the whole cluster."""

    shared = True
    transient = True
    needs = ("paths",)

    def look_at_all(self, settings: Settings, look: Callable[[str, int], Finding]) -> Finding:
        """Run `look` on each path and its threshold. Report each path before, for the message of a `timeout`."""
        found = []
        for path, threshold in settings["disk-size"]["paths"]:
            self.doing(path)
            found.append((path, look(path, threshold)))
        return judge_all(found)


class DiskSize(FileSystem):
    """Read a threshold in bytes from `settings["disk-size"]`."""

    section = "disk-size"
    measured = "space that users can still write"
    settings: Mapping[str, Setting] = {
        "root": Setting(SIZE, "32GB", "users must have more space than this on /; null: not checked", optional=True),
        "shm": Setting(SIZE, "1GB", "the same on /dev/shm", optional=True),
        "cache": Setting(SIZE, "32GB", "the same on /cache", optional=True),
        "required": Setting(
            TEXTS, (), "of root, shm, cache: those that must exist and have that much, even if small", NAMES
        ),
        "paths": Setting(SPACES, (), "further paths and the space that each must exceed: `/scratch 100GB`"),
    }

    def look(self, context: Context, settings: Settings) -> Finding:
        """Fail unless more space is available than the threshold."""
        threshold, space = self.own(settings)[self.name], measure(self.path)
        if self.required(settings):
            return judge(space and space.available, threshold)
        if why := unusable_reason(space):
            return Finding(SKIPPED, why)
        return judge(space and space.available, threshold_for(space, threshold))


class DiskSizePaths(FurtherPaths):
    """Read `settings["disk-size"]["paths"]`, pairs of a path and bytes."""

    item = "disk-size.paths"
    looks_at = "space that users can still write on paths that the site names; a shared file system may be among them"
    section = "disk-size"
    settings = DiskSize.settings
    condition = "no further paths on this site"

    def look(self, context: Context, settings: Settings) -> Finding:
        """Fail unless each path has more space available than its threshold."""
        return self.look_at_all(settings, lambda path, least: judge(available(path), least))


class Space(namedtuple("Space", "available size read_only")):
    """A file system: bytes that unprivileged users can still write, all bytes, and whether it is mounted read-only."""

    __slots__ = ()
    available: int
    size: int
    read_only: bool


def measure(path: str) -> Space | None:
    """Measure the file system at `path`; None if the path is missing. This may hang on a dead mount."""
    try:
        found = os.statvfs(path)
    except FileNotFoundError:
        return None
    return Space(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize, bool(found.f_flag & os.ST_RDONLY))


def available(path: str) -> int | None:
    """Return the bytes that users can still write in `path`; None if it is missing. This may hang on a dead mount."""
    space = measure(path)
    return space and space.available


def unusable_reason(space: Space | None) -> str:
    """Return a message if users are not meant to write there; empty if they are.

    A file system that the kernel made read-only after an error is still mounted rw. `mounts.local` finds this error.
    """
    if space is None:
        return "no such directory"
    if space.read_only:
        return "mounted read-only"
    return "" if space.size else "a file system of unknown size"


def threshold_for(space: Space | None, threshold: int) -> int:
    """Return the threshold; for a file system smaller than SMALL thresholds, a share of its size."""
    return threshold if space is None or space.size >= SMALL * threshold else space.size // SHARE


def judge(available_bytes: int | None, threshold: int) -> Finding:
    """Fail unless more than the threshold is available (`512 MB < 1 GB`), and for a missing directory."""
    if available_bytes is None:
        return Finding(FAILED, "no such directory", None, threshold)
    verdict = OK if available_bytes > threshold else FAILED
    return Finding(verdict, compare_sizes(available_bytes, threshold), available_bytes, threshold)


def judge_all(found: Sequence[tuple[str, Finding]]) -> Finding:
    """Fail if a path fails. The message names these paths, `/scratch: 512 MB < 1 GB`, or all if none fails."""
    low = [(path, finding) for path, finding in found if finding.verdict == FAILED]
    message = ", ".join(f"{path}: {finding.message}" for path, finding in low or found)
    return Finding(FAILED if low else OK, message, len(found) - len(low), len(found))
