"""`disk-size root|shm|cache|paths`: space available to users must be more than the threshold (row A3)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence

from prechecks import units
from prechecks.check import Check
from prechecks.setting import SIZE, SPACES, Setting
from prechecks.verdict import FAILED, NODE_PROBLEM, OK, SKIPPED, Context, Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class DiskSize(Check):
    """One file system. Its threshold, in bytes, is `settings["disk-size"][name]`; null: not checked on this site."""

    section = "disk-size"
    settings: Mapping[str, Setting] = {
        "root": Setting(SIZE, "32GB", "space on / must be more; null: not checked", optional=True),
        "shm": Setting(SIZE, "1GB", "space on /dev/shm must be more; null: not checked", optional=True),
        "cache": Setting(SIZE, "32GB", "space on /cache must be more; null: not checked", optional=True),
        "paths": Setting(SPACES, (), "further paths and the space that there must be more of: `/scratch 100GB`"),
    }
    problem = NODE_PROBLEM
    passing = True
    condition = "no threshold on this site"
    quick = True

    def __init__(self, name: str, path: str) -> None:
        self.item = f"disk-size.{name}"
        self.looks_at = f"space that users can still write on `{path}`"
        self.name = name
        self.path = path

    def applies(self, context: Context, settings: Mapping[str, Any]) -> bool:
        """Wherever the site sets a threshold."""
        return settings["disk-size"].get(self.name) is not None

    def look(self, context: Context, settings: Mapping[str, Any]) -> Finding:
        """More available than the threshold. A node without such a directory is no worse for that until a job comes."""
        space = available(self.path)
        if space is None and context.hook == "periodic":
            return Finding(SKIPPED, "no such directory")
        return judge(space, settings["disk-size"][self.name])


class DiskSizePaths(Check):
    """All of `settings["disk-size"]["paths"]`, pairs of a path and bytes, one after the other.

    Shared: such a path is often a file system of the whole cluster.
    """

    item = "disk-size.paths"
    looks_at = "space that users can still write on paths that the site names; a shared file system may be among them"
    section = "disk-size"
    settings = DiskSize.settings
    problem = NODE_PROBLEM
    shared = True
    condition = "no further paths on this site"

    def applies(self, context: Context, settings: Mapping[str, Any]) -> bool:
        """Wherever the site names some."""
        return bool(self.own(settings).get("paths"))

    def look(self, context: Context, settings: Mapping[str, Any]) -> Finding:
        """More available than each threshold."""
        return look_at_all(self, self.own(settings)["paths"], lambda path, least: judge(available(path), least))


def available(path: str) -> int | None:
    """Bytes that a user without privileges can still write under `path`, None without it. May hang on a dead mount."""
    try:
        found = os.statvfs(path)
    except FileNotFoundError:
        return None
    return found.f_bavail * found.f_frsize


def judge(available_bytes: int | None, threshold: int) -> Finding:
    """`512 MB < 1 GB` fails, and so does exactly the threshold, and a directory that does not exist."""
    if available_bytes is None:
        return Finding(FAILED, "no such directory", None, threshold)
    verdict = OK if available_bytes > threshold else FAILED
    return Finding(verdict, units.compare_sizes(available_bytes, threshold), available_bytes, threshold)


def look_at_all(check: Check, paths: Iterable[tuple[str, int]], look: Callable[[str, int], Finding]) -> Finding:
    """What `look` finds on each of `disk-size.paths`. A check that hangs names the one it is at."""
    found = []
    for path, threshold in paths:
        check.doing(path)
        found.append((path, look(path, threshold)))
    return judge_all(found)


def judge_all(found: Sequence[tuple[str, Finding]]) -> Finding:
    """`/scratch: 512 MB < 1 GB` names those that fail, all of them where none does."""
    low = [(path, finding) for path, finding in found if finding.verdict == FAILED]
    message = ", ".join(f"{path}: {finding.message}" for path, finding in low or found)
    return Finding(FAILED if low else OK, message, len(found) - len(low), len(found))
