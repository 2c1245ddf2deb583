"""`mounts paths`: mount points that the site requires. `mounts local`: file systems that the kernel made read-only.

The mount table still lists a mount if its server is gone. So the check queries each path with statvfs, which sends a
request to an NFS server every time; stat and directory entries may come from a cache. If a path never answers, the
message of the timeout names it.

The table is /proc/self/mountinfo (proc_pid_mountinfo(5)). In a line, the options of the mount are before ` - `, those
of its file system after it. After a disk error with errors=remount-ro, an ext4 mount is still `rw`, but its file system
has the option `emergency_ro`, or `ro` on kernels before 6.12.
"""

from __future__ import annotations

import os
from collections import namedtuple
from collections.abc import Collection, Iterator, Mapping, Sequence

from prechecks.check import FLAG, PATHS, Check, Setting, Settings
from prechecks.verdict import FAILED, OK, Context, Finding

MOUNTINFO = "/proc/self/mountinfo"
LOCAL = frozenset({"btrfs", "ext2", "ext3", "ext4", "f2fs", "xfs"})  # on a disk, and writable if mounted rw
BROKEN = frozenset({"emergency_ro", "ro", "shutdown"})  # options of a file system that refuses writes
SETTINGS: Mapping[str, Setting] = {
    "paths": Setting(PATHS, (), "these must be mounted, answer, and not be read-only"),
    "read_only": Setting(PATHS, (), "those of `paths` that may be read-only"),
    "local": Setting(FLAG, "yes", "yes: fail if the kernel made a local file system read-only after an error"),
}


class MountPaths(Check):
    """Check the paths of `settings["mounts"]["paths"]`, in turn. `shared`: most are mounted on all nodes."""

    item = "mounts.paths"
    looks_at = "mount points that the site names; each must be mounted and answer a request"
    section = "mounts"
    settings = SETTINGS
    shared = True
    needs = ("paths",)
    condition = "no mount points of this site"

    def look(self, context: Context, settings: Settings) -> Finding:
        """Fail unless each path is mounted and answers, and is writable or allowed to be read-only."""
        own = self.own(settings)
        answers: list[tuple[str, str, str]] = []
        for path in own["paths"]:
            self.doing(path)
            answers.append((path, os.path.realpath(path), ask(path)))
        mounted = {mount.point: mount for mount in mounts()}  # read last: a query may mount a path (autofs)
        return judge([(path, why, mounted.get(real)) for path, real, why in answers], own["read_only"])


class MountLocal(Check):
    """Check the file systems on this node's own disks."""

    item = "mounts.local"
    looks_at = "file systems on the node's own disks"
    section = "mounts"
    settings = SETTINGS
    needs = ("local",)
    condition = "not wanted on this site"
    forked = False  # reads only the kernel's table, queries no file system

    def look(self, context: Context, settings: Settings) -> Finding:
        """Fail for a file system that has become read-only."""
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
    """Yield the mounts that this process sees, of these kinds or of all. On one point, the topmost comes last."""
    # newline: a user may mount at a path with a carriage return (FUSE), which the kernel does not escape.
    with open(MOUNTINFO, encoding="utf-8", errors="surrogateescape", newline="\n") as lines:  # noqa: PTH123 - as in gpu
        for line in lines:  # a node with containers has hundreds of lines
            if not kinds or line.partition(" - ")[2].partition(" ")[0] in kinds:
                yield parse(line)


def parse(line: str) -> Mount:
    """Parse one line of mountinfo."""
    mount, _, system = line.rstrip("\n").partition(" - ")
    _, _, device, _, point, options = mount.split(" ")[:6]
    kind, _, state = system.split(" ")[:3]
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        point = point.replace(code, character)
    return Mount(device, point, frozenset(options.split(",")), kind, frozenset(state.split(",")))


def ask(path: str) -> str:
    """Return an empty text if `path` is a directory that can be read, else the system's error. This may hang."""
    try:
        os.statvfs(path)
        with os.scandir(path) as entries:
            next(entries, None)
    except PermissionError:  # an answer: root has no rights on many network file systems
        return ""
    except OSError as error:
        return error.strerror or str(error)
    return ""


def judge(found: Sequence[tuple[str, str, Mount | None]], read_only: Collection[str]) -> Finding:
    """Fail if a path fails, and name it: `/home: Stale file handle, /data: not mounted, /scratch: read-only`."""
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
    """Fail for broken file systems, each named once: `/ (ext4) is mounted rw and takes no writes: emergency_ro`."""
    every: set[str] = set()
    broken: dict[str, str] = {}
    for mount in found:
        every.add(mount.device)
        if "rw" in mount.options and mount.state & BROKEN:
            why = ", ".join(sorted(mount.state & BROKEN))
            broken.setdefault(mount.device, f"{mount.point} ({mount.kind}) is mounted rw and takes no writes: {why}")
    message = "; ".join(broken.values()) or f"local file systems: {len(every)}"
    return Finding(FAILED if broken else OK, message, len(every) - len(broken), len(every))
