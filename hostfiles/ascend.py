"""Variables of one Ascend process: one task a device (row B7), with a rank table or with MindSpore's dynamic cluster.

The task's number is its rank: the hosts' order, then the device's. Device ids are logical: the program sees the job's
devices on its node as 0, 1, …, for ASCEND_RT_VISIBLE_DEVICES names them to the driver by their physical ids.
"""

from __future__ import annotations

import shlex

from hostfiles.allocation import Allocation, Host
from hostfiles.errors import HostfileError
from hostfiles.ranktable_rules import address


def table_variables(allocation: Allocation, task: int, path: str) -> dict[str, str]:
    """For the process of task `task` (from 0) with the rank table in the file `path`.

    RANK_TABLE_FILE is the file, absolute: HCCL opens it, and takes no name in which `.json` is not the end. Raises
    HostfileError for another path, a task that is not there, and hosts with more or fewer tasks than devices.
    """
    if not path.startswith("/") or path.find(".json") != len(path) - len(".json"):
        raise HostfileError(f"{path[:80]!r} is no file for HCCL; its path is absolute and has .json once, at its end")
    return {"RANK_TABLE_FILE": path, **_process(allocation, task)}


def cluster_variables(allocation: Allocation, task: int, port: int) -> dict[str, str]:
    """For the process of task `task` without a table: a worker, whose rank MindSpore takes from MS_NODE_ID.

    Raises HostfileError as `table_variables`, for a port outside 1024-65535, and where the first host has no address.
    """
    host, _ = _place(allocation, task)
    return {
        "MS_ROLE": "MS_WORKER",
        **_cluster(allocation, host, port),
        "MS_NODE_ID": str(task),
        **_process(allocation, task),
    }


def scheduler_variables(allocation: Allocation, port: int) -> dict[str, str]:
    """For the one more process of a dynamic cluster, on the first host: the same program, where it trains nothing."""
    return {"MS_ROLE": "MS_SCHED", **_cluster(allocation, allocation.hosts[0], port)}


def text(allocation: Allocation, port: int, task: int | None = None) -> str:
    """Shell lines that export a worker's variables, or, without a task, the scheduler's."""
    return exports(scheduler_variables(allocation, port) if task is None else cluster_variables(allocation, task, port))


def exports(variables: dict[str, str]) -> str:
    """The variables as lines of a shell."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())


def _process(allocation: Allocation, task: int) -> dict[str, str]:
    """What every process has. DEVICE_ID is the older name of ASCEND_DEVICE_ID."""
    host, local = _place(allocation, task)
    visible = ",".join(str(device.id) for device in sorted(host.devices, key=lambda device: device.id))
    return {
        "RANK_ID": str(task),
        "RANK_SIZE": str(allocation.tasks),
        "ASCEND_DEVICE_ID": str(local),
        "DEVICE_ID": str(local),
        **({"ASCEND_RT_VISIBLE_DEVICES": visible} if visible else {}),
    }


def _place(allocation: Allocation, task: int) -> tuple[Host, int]:
    """The host of a task and its number there."""
    first = 0
    place: tuple[Host, int] | None = None
    for host in allocation.hosts:
        if host.tasks != host.slots:
            raise HostfileError(f"{host.name}: {host.tasks} tasks and {host.slots} devices; one task a device")
        if first <= task < first + host.tasks:
            place = host, task - first
        first += host.tasks
    if place is None:
        raise HostfileError(f"task {task} of {allocation.tasks}; tasks count from 0")
    return place


def _cluster(allocation: Allocation, host: Host, port: int) -> dict[str, str]:
    """What scheduler and workers share. MindSpore wants addresses, no names, and with IPv6 the process's own too."""
    first = allocation.hosts[0]
    for each in (first, host):
        if address(each.address) is None:
            raise HostfileError(f"{each.name}: {each.address[:60]!r} is no address; MindSpore's cluster takes no names")
    if not 1024 <= port <= 65535:
        raise HostfileError(f"port {port}; MS_SCHED_PORT is 1024 to 65535")
    return {
        "MS_SCHED_HOST": first.address,
        "MS_SCHED_PORT": str(port),
        "MS_WORKER_NUM": str(allocation.tasks),
        **({"MS_WORKER_IP": host.address} if ":" in first.address else {}),
    }
