"""`mounts paths`: mount points that the site requires; `mounts local`: file systems that the kernel made read-only.

The mount table alone passes a mount whose server is gone, so each path is asked: statvfs goes to an NFS server every
time, where stat and the entries of a directory may come from a cache. One that never answers is named by the time-out.

The table is /proc/self/mountinfo (proc_pid_mountinfo(5)): the options of the mount stand before ` - `, those of its
file system behind it. After an error of the disk, with errors=remount-ro, ext4 shows `emergency_ro` there, and kernels
before 6.12 `ro`, beside a mount that is still `rw`.
"""

from __future__ import annotations

import os
from collections import namedtuple
from collections.abc import Collection, Iterator, Mapping, Sequence

from prechecks.check import Check
from prechecks.setting import FLAG, PATHS, Setting
from prechecks.verdict import FAILED, NODE_PROBLEM, OK, Context, Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LOCAL = frozenset({"btrfs", "ext2", "ext3", "ext4", "f2fs", "xfs"})  # on a disk, and written to wherever mounted rw
BROKEN = frozenset({"emergency_ro", "ro", "shutdown"})  # options of a file system that takes no writes
SETTINGS: Mapping[str, Setting] = {
    "paths": Setting(PATHS, (), "these must be mounted, answer, and not be read-only"),
    "read_only": Setting(PATHS, (), "those of them that may be read-only"),
    "local": Setting(FLAG, "yes", "yes: a local file system that the kernel made read-only after an error fails"),
}


class MountPaths(Check):
    """The paths of `settings["mounts"]["paths"]`, one after the other. Shared: most such are of the whole cluster."""

    item = "mounts.paths"
    looks_at = "mount points that the site names: each is asked, not only looked up"
    section = "mounts"
    settings = SETTINGS
    problem = NODE_PROBLEM
    shared = True
    condition = "no mount points of this site"

    def applies(self, context: Context, settings: Mapping[str, Any]) -> bool:
        """Wherever the site names some."""
        return bool(self.own(settings).get("paths"))

    def look(self, context: Context, settings: Mapping[str, Any]) -> Finding:
        """Each is mounted, answers, and is not read-only unless it may be."""
        own = self.own(settings)
        answers: list[tuple[str, str, str]] = []
        for path in own["paths"]:
            self.doing(path)
            answers.append((path, os.path.realpath(path), ask(path)))
        mounted = {mount.point: mount for mount in mounts()}  # after they were asked: that may mount them (autofs)
        return judge([(path, why, mounted.get(real)) for path, real, why in answers], own["read_only"])


class MountLocal(Check):
    """The file systems on this node's own disks."""

    item = "mounts.local"
    looks_at = "file systems on the node's own disks"
    section = "mounts"
    settings = SETTINGS
    problem = NODE_PROBLEM
    condition = "not wanted on this site"
    forked = False  # the kernel's own table; no file system is asked

    def applies(self, context: Context, settings: Mapping[str, Any]) -> bool:
        """Unless the site says no."""
        return bool(self.own(settings).get("local"))

    def look(self, context: Context, settings: Mapping[str, Any]) -> Finding:
        """None has become read-only."""
        return judge_local(mounts(LOCAL))


class Mount(namedtuple("Mount", "device point options kind state")):
    """A line of the table: `8:1`, `/home`, the options of the mount, `ext4`, the options of the file system."""

    __slots__ = ()
    device: str
    point: str
    options: frozenset[str]
    kind: str
    state: frozenset[str]


def mounts(kinds: Collection[str] = ()) -> Iterator[Mount]:
    """What this process sees mounted, of these kinds or of all; of several on one point the top one is last."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:  # noqa: PTH123 - as in gpu
        for line in lines:  # a node with containers has hundreds
            if not kinds or line.partition(" - ")[2].partition(" ")[0] in kinds:
                yield parse(line)


def parse(line: str) -> Mount:
    """One line of mountinfo."""
    mount, _, system = line.rstrip("\n").partition(" - ")
    _, _, device, _, point, options = mount.split(" ")[:6]
    kind, _, state = system.split(" ")[:3]
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        point = point.replace(code, character)
    return Mount(device, point, frozenset(options.split(",")), kind, frozenset(state.split(",")))


def ask(path: str) -> str:
    """Empty where `path` is a directory that answers, else the system's words for why not. May hang."""
    try:
        os.statvfs(path)
        with os.scandir(path) as entries:
            next(entries, None)
    except PermissionError:  # it has answered: root has no rights on many a network file system
        return ""
    except OSError as error:
        return error.strerror or str(error)
    return ""


def judge(found: Sequence[tuple[str, str, Mount | None]], read_only: Collection[str]) -> Finding:
    """`/home: Stale file handle, /data: not mounted, /scratch: read-only` names those that fail."""
    wrong = []
    for path, why, mount in found:
        if why:
            wrong.append(f"{path}: {why}")
        elif mount is None:
            wrong.append(f"{path}: not mounted")
        elif path not in read_only and ("ro" in mount.options or mount.state & BROKEN):
            wrong.append(f"{path}: read-only")
    message = ", ".join(wrong or (path for path, _, _ in found))
    return Finding(FAILED if wrong else OK, message, len(found) - len(wrong), len(found))


def judge_local(found: Iterator[Mount]) -> Finding:
    """`/ (ext4) takes no writes although it is mounted rw: emergency_ro`, once for a file system."""
    every: set[str] = set()
    broken: dict[str, str] = {}
    for mount in found:
        every.add(mount.device)
        if "rw" in mount.options and mount.state & BROKEN:
            why = ", ".join(sorted(mount.state & BROKEN))
            broken.setdefault(mount.device, f"{mount.point} ({mount.kind}) is mounted rw and takes no writes: {why}")
    message = "; ".join(broken.values()) or f"local file systems: {len(every)}"
    return Finding(FAILED if broken else OK, message, len(every) - len(broken), len(every))
