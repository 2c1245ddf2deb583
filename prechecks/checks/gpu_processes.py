"""`gpu-processes`: processes on the GPUs of this job that do not belong to this job.

In a prolog the job has no process yet, so every process on its GPUs belongs to another job or to none. Format:
`nvidia-smi --help-query-compute-apps`. prechecks.measure.proc finds the job of a process. Users choose the names of
their processes, also with line breaks, so the tool is not asked for the names.

If a person uses the GPUs, the failure keeps this job away, but does not drain the node. The check assumes a person if
all the processes belong to users and no ended job left one (prechecks.checks.processes), or if slurmd does not run.
"""

from __future__ import annotations

import os
from collections import namedtuple
from collections.abc import Iterable, Mapping, Sequence, Set

from prechecks.check import FLAG, TEXTS, Setting, Settings
from prechecks.checks.gpu import NvidiaCheck
from prechecks.checks.processes import leftovers
from prechecks.measure import nvidia, proc
from prechecks.verdict import FAILED, OK, Context, Finding, first_few

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from prechecks.measure.nvml import Nvml

FIELDS = ("gpu_bus_id", "pid")
FIRST_USER = 1000  # if the site does not set processes.users_from


class GpuProcess(namedtuple("GpuProcess", "bus pid name user job")):
    """A process that computes on a GPU, its user, and its Slurm job; an empty `job` means none."""

    __slots__ = ()
    bus: str
    pid: int
    name: str
    user: str
    job: str


class GpuProcesses(NvidiaCheck):
    """Read `settings["gpu-processes"]`: which processes may be on a GPU."""

    item = "gpu-processes"
    looks_at = "processes on the job's GPUs"
    settings: Mapping[str, Setting] = {
        "accept": Setting(TEXTS, ("nvidia-cuda-mps-server",), "programs that may be on a GPU before the job"),
        "shared": Setting(FLAG, "no", "jobs share GPUs (shards, MPS): a process of any job may be there"),
    }
    hooks = ("prolog",)
    condition = "the job uses no GPUs, or the site names no tool for them"

    def applies(self, context: Context, settings: Settings) -> bool:
        """Return whether the job uses GPUs and the site sets a tool."""
        return bool(context.gpus) and super().applies(context, settings)

    def by_nvml(self, driver: Nvml, own: Settings) -> Sequence[tuple[str, ...]]:
        """Return bus id, pid and name of each process. Raise ValueError if a GPU does not list its processes."""
        found = []
        for gpu in driver.gpus():
            there = driver.cell("nvmlDeviceGetComputeRunningProcesses_v3", gpu.handle)
            if isinstance(there, str):
                raise ValueError(f"{gpu.bus}: the driver says {there!r} where processes are wanted")
            pids = [process.pid for process in there]
            found += [(gpu.bus, str(pid), driver.cell("nvmlSystemGetProcessName", pid)) for pid in pids]
        return found

    def by_tool(self, path: str, own: Settings) -> Sequence[tuple[str, ...]]:
        """Return the same, for every GPU of the node. The name is the first word of the command line."""
        found = nvidia.query(path, "compute-apps", FIELDS).rows
        return [(bus, pid, proc.title(int(pid)).partition("\0")[0]) for bus, pid in found if pid.isdigit()]

    def judge_result(self, found: Any, context: Context, settings: Settings) -> Finding:
        """Judge the rows of the job's own GPUs. Raise LookupError if the driver lacks one of them.

        A process that has ended meanwhile is not judged: its owner is no longer known.
        """
        buses = nvidia.by_minor()
        for minor in context.gpus:
            if minor not in buses:
                raise LookupError(f"{nvidia.DRIVER} has no GPU with the minor number {minor}")
        mine = {buses[minor] for minor in context.gpus}
        there = [process for row in found if row[0] in mine and (process := look_up(row))]
        own = self.own(settings)
        finding = judge(there, own["accept"], shared=own["shared"])
        if finding.verdict != FAILED:
            return finding
        pids = {each.pid for each in strays(there, own["accept"], shared=own["shared"])}
        used = in_use(pids, settings.get("processes", {}).get("users_from", FIRST_USER))
        if all(os.path.exists(f"/proc/{pid}") for pid in pids):  # noqa: PTH110 - as in prechecks.checks.gpu
            return finding._replace(used=used)
        return self.judge_result(found, context, settings)


def look_up(row: tuple[str, ...]) -> GpuProcess | None:
    """Return the process of a row, with user and job from /proc; None if it has ended or the row has no pid."""
    bus, pid, name = row
    if not pid.isdigit():
        return None
    cgroups = proc.cgroup(int(pid))
    try:
        uid = os.stat(f"/proc/{pid}").st_uid  # noqa: PTH116 - as in prechecks.checks.gpu
    except FileNotFoundError:
        return None
    return GpuProcess(bus, int(pid), name, proc.user(uid), proc.job(cgroups))


def strays(processes: Iterable[GpuProcess], accept: Sequence[str], *, shared: bool) -> list[GpuProcess]:
    """Return the processes that must not be there. If jobs share GPUs, processes of jobs are allowed."""
    return [each for each in processes if each.name.rpartition("/")[2] not in accept and not (shared and each.job)]


def in_use(pids: Set[int], users_from: int) -> bool:
    """Return whether all these processes belong to users and no ended job left one; True if slurmd does not run."""
    table = proc.table(users_from)
    if any(pid not in table or table[pid].uid < users_from for pid in pids):
        return False
    try:
        left = leftovers(table, users_from, proc.cgroup, proc.title)
    except LookupError:
        return True
    return pids.isdisjoint({each.pid for each in left})


def judge(processes: Iterable[GpuProcess], accept: Sequence[str], *, shared: bool) -> Finding:
    """Fail if there are strays, and name the first three."""
    found = strays(processes, accept, shared=shared)
    named = [
        f"pid {each.pid} of {each.user}" + (f", job {each.job}," if each.job else "") + f" on {each.bus}"
        for each in found
    ]
    # The pids first, for the prolog: long names are cut off.
    value = f"{' '.join(str(each.pid) for each in found)}: {', '.join(dict.fromkeys(each.name for each in found))}"
    if found:
        return Finding(FAILED, f"left on the job's GPUs: {first_few(named, separator='; ')}", value)
    return Finding(OK, "no process on the job's GPUs")
