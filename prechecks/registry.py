"""Every check, in the order of reports and logs."""

from __future__ import annotations

from collections.abc import Mapping

from prechecks.check import Check, Setting
from prechecks.checks.accelerators import AmdCheck, MluCheck, NpuCheck
from prechecks.checks.clock import Clock
from prechecks.checks.command import Command
from prechecks.checks.disk import DiskSize, DiskSizePaths
from prechecks.checks.dns import Dns
from prechecks.checks.gpu import GpuCheck
from prechecks.checks.gpu_ecc import GpuEcc
from prechecks.checks.gpu_nvlink import GpuNvlink
from prechecks.checks.gpu_processes import GpuProcesses
from prechecks.checks.gpu_remap import GpuRemap
from prechecks.checks.gpu_xid import GpuXid
from prechecks.checks.infiniband import Infiniband
from prechecks.checks.inodes import Inodes, InodesPaths
from prechecks.checks.memory import Memory, MemoryAvailable, RealMemory
from prechecks.checks.mounts import MountLocal, MountPaths
from prechecks.checks.nic import Nic
from prechecks.checks.ports import Ports
from prechecks.checks.processes import Leftovers, Processes
from prechecks.checks.services import Services
from prechecks.checks.ulimit import Ulimit
from prechecks.verdict import NODE_PROBLEM

CHECKS: tuple[Check, ...] = (
    Dns(),
    DiskSize("root", "/"),
    DiskSize("shm", "/dev/shm"),  # noqa: S108 - measured, never written
    DiskSize("cache", "/cache"),
    Ulimit(),
    GpuCheck(),
    Infiniband(),
    Nic(),
    GpuEcc(),
    GpuRemap(),
    GpuNvlink(),
    GpuProcesses(),
    GpuXid(),
    NpuCheck(),
    MluCheck(),
    AmdCheck(),
    Inodes("root", "/"),
    Inodes("shm", "/dev/shm"),  # noqa: S108 - the same
    Inodes("cache", "/cache"),
    DiskSizePaths(),
    InodesPaths(),
    MountPaths(),
    MountLocal(),
    Memory(),
    MemoryAvailable(),
    RealMemory(),
    Clock(),
    Processes(),
    Leftovers(),
    Services(),
    Ports(),
    Command(),
)

SECTIONS: Mapping[str, Mapping[str, Setting]] = {check.section or check.item: check.settings for check in CHECKS}

# A later check does not report an event again.
EVENT_ITEMS = frozenset(check.item for check in CHECKS if check.event)

# Checks that fail only because of the node itself. An epilog runs these checks again.
NODE_ITEMS: tuple[str, ...] = tuple(
    check.item for check in CHECKS if check.problem == NODE_PROBLEM and not check.shared and not check.transient
)
