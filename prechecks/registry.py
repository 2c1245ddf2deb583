"""Every check, in the order of reports and logs."""

from __future__ import annotations

from collections.abc import Mapping

from prechecks.check import Check
from prechecks.clock import Clock
from prechecks.command import Command
from prechecks.disk import DiskSize, DiskSizePaths
from prechecks.dns import Dns
from prechecks.gpu import GpuCheck
from prechecks.inodes import Inodes
from prechecks.memory import Memory
from prechecks.mounts import MountLocal, MountPaths
from prechecks.ports import Ports
from prechecks.processes import Processes
from prechecks.services import Services
from prechecks.setting import Setting
from prechecks.ulimit import Ulimit
from prechecks.verdict import NODE_PROBLEM

CHECKS: tuple[Check, ...] = (
    Dns(),
    DiskSize("root", "/"),
    DiskSize("shm", "/dev/shm"),  # noqa: S108 - looked at, never written
    DiskSize("cache", "/cache"),
    Ulimit(),
    GpuCheck(),
    Inodes("root", "/"),
    Inodes("shm", "/dev/shm"),  # noqa: S108 - the same
    Inodes("cache", "/cache"),
    DiskSizePaths(),
    MountPaths(),
    MountLocal(),
    Memory(),
    Clock(),
    Processes(),
    Services(),
    Ports(),
    Command(),
)

SECTIONS: Mapping[str, Mapping[str, Setting]] = {check.section or check.item: check.settings for check in CHECKS}

NODE_ITEMS: tuple[str, ...] = tuple(check.item for check in CHECKS if check.problem == NODE_PROBLEM)
