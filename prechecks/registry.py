"""Every check, in the order of reports and logs."""

from __future__ import annotations

from collections.abc import Mapping

from prechecks.amd import AmdCheck
from prechecks.check import Check
from prechecks.clock import Clock
from prechecks.command import Command
from prechecks.disk import DiskSize, DiskSizePaths
from prechecks.dns import Dns
from prechecks.gpu import GpuCheck
from prechecks.gpu_ecc import GpuEcc
from prechecks.gpu_nvlink import GpuNvlink
from prechecks.gpu_processes import GpuProcesses
from prechecks.gpu_remap import GpuRemap
from prechecks.gpu_xid import GpuXid
from prechecks.infiniband import Infiniband
from prechecks.inodes import Inodes, InodesPaths
from prechecks.leftovers import Leftovers
from prechecks.memory import Memory
from prechecks.mlu import MluCheck
from prechecks.mounts import MountLocal, MountPaths
from prechecks.nic import Nic
from prechecks.npu import NpuCheck
from prechecks.ports import Ports
from prechecks.processes import Processes
from prechecks.real_memory import RealMemory
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
    RealMemory(),
    Clock(),
    Processes(),
    Leftovers(),
    Services(),
    Ports(),
    Command(),
)

SECTIONS: Mapping[str, Mapping[str, Setting]] = {check.section or check.item: check.settings for check in CHECKS}

# What fails only by the node itself: an epilog looks at these again.
NODE_ITEMS: tuple[str, ...] = tuple(
    check.item for check in CHECKS if check.problem == NODE_PROBLEM and not check.shared
)
