"""`gpu-processes`: a process that an earlier job, or nobody's job, left on the GPUs that this job got.

In a prolog the job itself has no process yet, so whoever computes on its GPUs is not of it. Formats: `nvidia-smi
--help-query-compute-apps`; the job of a process is in its cgroup's path, `.../job_123/step_0/...` (Slurm's cgroup
plugins, versions 1 and 2).
"""

from __future__ import annotations

import os
from collections import namedtuple
from collections.abc import Iterable, Mapping, Sequence

from prechecks import nvidia
from prechecks.setting import FLAG, TEXTS, Setting
from prechecks.verdict import FAILED, OK, Context, Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from prechecks.nvml import Nvml

FIELDS = ("gpu_bus_id", "pid", "process_name")  # the name last: it may hold commas
NAMED = 3  # processes that a message names


class Process(namedtuple("Process", "bus pid name user job")):
    """One that computes on a GPU: whose it is, and in which Slurm job, empty for none."""

    __slots__ = ()
    bus: str
    pid: int
    name: str
    user: str
    job: str


class GpuProcesses(nvidia.NvidiaCheck):
    """`settings["gpu-processes"]`: who may be there."""

    item = "gpu-processes"
    looks_at = "processes on the GPUs that the job got"
    settings: Mapping[str, Setting] = {
        "accept": Setting(TEXTS, ("nvidia-cuda-mps-server",), "programs that may be on a GPU before the job"),
        "shared": Setting(FLAG, "no", "jobs share GPUs (shards, MPS): a process of any job may be there"),
    }
    hooks = ("prolog",)
    condition = "the job uses no GPUs, or the site names no tool for them"

    def applies(self, context: Context, settings: Mapping[str, Any]) -> bool:
        """To jobs that use GPUs: there is nothing to compare on others."""
        return bool(context.gpus) and super().applies(context, settings)

    def by_nvml(self, driver: Nvml, own: Mapping[str, Any]) -> Sequence[tuple[str, ...]]:
        """The columns of FIELDS. Raises ValueError where a GPU does not say."""
        found = []
        for gpu in driver.gpus():
            there = driver.cell("nvmlDeviceGetComputeRunningProcesses_v3", gpu.handle)
            if isinstance(there, str):
                raise ValueError(f"{gpu.bus}: the driver says {there!r} where processes are wanted")
            pids = [process.pid for process in there]
            found += [(gpu.bus, str(pid), driver.cell("nvmlSystemGetProcessName", pid)) for pid in pids]
        return found

    def by_tool(self, path: str, own: Mapping[str, Any]) -> Sequence[tuple[str, ...]]:
        """Everything on the node."""
        return nvidia.query(path, "compute-apps", FIELDS).rows

    def judged(self, found: Any, context: Context, settings: Mapping[str, Any]) -> Finding:
        """What of it is on the job's GPUs. Raises LookupError for one that the driver lacks."""
        buses = nvidia.by_minor()
        for minor in context.gpus:
            if minor not in buses:
                raise LookupError(f"{nvidia.DRIVER} has no GPU with the minor number {minor}")
        mine = {buses[minor] for minor in context.gpus}
        there = [process for row in found if row[0] in mine and (process := about(row))]
        own = self.own(settings)
        return judge(there, own["accept"], shared=own["shared"])


def about(row: tuple[str, ...]) -> Process | None:
    """What /proc says of the process in a row; None where it has ended, or the row names none."""
    bus, pid, name = row
    if not pid.isdigit():
        return None
    try:
        uid = os.stat(f"/proc/{pid}").st_uid  # noqa: PTH116 - as in prechecks.gpu
        with open(f"/proc/{pid}/cgroup", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            cgroups = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return Process(bus, int(pid), name, user(uid), job(cgroups))


def user(uid: int) -> str:
    """The user's name, or the number of one that the node does not know."""
    import pwd  # noqa: PLC0415 - only the forked child needs it: a directory service may take its time

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def job(cgroups: str) -> str:
    """The Slurm job in the lines of /proc/<pid>/cgroup, empty for none."""
    for part in cgroups.replace("\n", "/").split("/"):
        number = part.removeprefix("job_")
        if number != part and number.isdigit():
            return number
    return ""


def judge(processes: Iterable[Process], accept: Sequence[str], *, shared: bool) -> Finding:
    """None but those that are accepted; where jobs share GPUs, a process of a job is."""
    strays = [each for each in processes if each.name.rpartition("/")[2] not in accept and not (shared and each.job)]
    told = [
        f"pid {each.pid} of {each.user}" + (f", job {each.job}," if each.job else "") + f" on {each.bus}"
        for each in strays[:NAMED]
    ]
    more = f" and {len(strays) - NAMED} more" if len(strays) > NAMED else ""
    value = ", ".join(f"{each.pid} {each.name}" for each in strays)
    if strays:
        return Finding(FAILED, f"left on the job's GPUs: {'; '.join(told)}{more}", value)
    return Finding(OK, "no process on the job's GPUs")
