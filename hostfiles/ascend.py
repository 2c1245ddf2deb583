"""Variables of one Ascend process: one task a device (row B7), with a rank table or with MindSpore's dynamic cluster.

The rank of a process is that of its device: the hosts' order, then the device's. Device ids are logical: the program
sees the job's devices on its node as 0, 1, …, for ASCEND_RT_VISIBLE_DEVICES names them to the driver by their physical
ids. Where a table is there already, it says which ranks a host has (`of_table`, `rank_in_table`), not Slurm's order.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence

from hostfiles.allocation import Allocation, Host
from hostfiles.errors import HostfileError
from hostfiles.ranktable_rules import Server, address


def table_variables(allocation: Allocation, task: int, path: str) -> dict[str, str]:
    """For the process of task `task` (from 0) with the rank table in the file `path`.

    RANK_TABLE_FILE is the file, absolute: HCCL opens it, and takes no name in which `.json` is not the end. Raises
    HostfileError for another path, a task that is not there, and hosts with more or fewer tasks than devices.
    """
    if not path.startswith("/") or path.find(".json") != len(path) - len(".json"):
        raise HostfileError(f"{path[:80]!r} is no file for HCCL; its path is absolute and has .json once, at its end")
    index, local = _place(allocation, task)
    rank = sum(host.tasks for host in allocation.hosts[:index]) + local  # as tables count, whatever Slurm's order
    return {"RANK_TABLE_FILE": path, **_process(allocation, task, rank)}


def cluster_variables(allocation: Allocation, task: int, port: int) -> dict[str, str]:
    """For the process of task `task` without a table: a worker, whose rank MindSpore takes from MS_NODE_ID.

    Raises HostfileError as `table_variables`, for a port outside 1024-65535, and where the first host has no address.
    """
    index, _ = _place(allocation, task)
    host = allocation.hosts[index]
    return {
        "MS_ROLE": "MS_WORKER",
        **_cluster(allocation, host, port),
        "MS_NODE_ID": str(task),
        **_process(allocation, task, task),
    }


def scheduler_variables(allocation: Allocation, port: int) -> dict[str, str]:
    """For the one more process of a dynamic cluster, on the first host: the same program, where it trains nothing."""
    return {"MS_ROLE": "MS_SCHED", **_cluster(allocation, allocation.hosts[0], port)}


def of_table(servers: Sequence[Server]) -> Allocation:
    """The servers of a table as an allocation: its task N is the table's rank N.

    Raises HostfileError where the ranks of a server do not follow its device ids: logical ids do.
    """
    for server in servers:
        ids = [device.id for device in server.devices]
        if ids != sorted(ids):
            raise HostfileError(f"server {server.id}: its ranks are devices {ids}; they have to follow the device ids")
    return Allocation(
        tuple(
            Host(f"server{place}", len(server.devices), len(server.devices), server.id, server.devices)
            for place, server in enumerate(servers)
        )
    )


def rank_in_table(servers: Sequence[Server], allocation: Allocation, task: int, addresses: Collection[str]) -> int:
    """The rank that a table gives to a task whose host has these addresses: one of them is the server_id there.

    Raises HostfileError for a task that is not there, a host that is no server, and other than one task a device.
    """
    devices = sum(len(server.devices) for server in servers)
    if devices != allocation.tasks:
        raise HostfileError(f"{allocation.tasks} tasks, and {devices} devices in the rank table; one task a device")
    index, local = _place(allocation, task)
    host = allocation.hosts[index]
    wanted = {address(ip) or ip for ip in addresses}
    first = 0
    for server in servers:
        if (address(server.id) or server.id) in wanted:
            if host.tasks != len(server.devices):
                raise HostfileError(
                    f"{host.name}: {host.tasks} tasks, and {len(server.devices)} devices in the rank table;"
                    " one task a device"
                )
            return first + local
        first += len(server.devices)
    known = ", ".join([server.id for server in servers[:3]] + ["…"] * (len(servers) > 3))
    own = ", ".join(addresses)
    raise HostfileError(f"{host.name} is {own} here, and no server of the rank table, which has {known}")


def text(allocation: Allocation, port: int, task: int | None = None, *, table: str = "") -> str:
    """Shell lines that export a process's variables: with the rank table in the file `table`, or without one.

    Without a table a missing task means the scheduler of the dynamic cluster; with one there is no such process.
    """
    if table:
        if task is None:
            raise HostfileError("a rank table has no scheduler; say for which rank with --task, or ask in a step")
        return exports(table_variables(allocation, task, table))
    return exports(scheduler_variables(allocation, port) if task is None else cluster_variables(allocation, task, port))


def exports(variables: dict[str, str]) -> str:
    """The variables as lines of a shell."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())


def _process(allocation: Allocation, task: int, rank: int) -> dict[str, str]:
    """What every process has. DEVICE_ID is the older name of ASCEND_DEVICE_ID."""
    for host in allocation.hosts:
        if host.tasks != host.slots:
            raise HostfileError(f"{host.name}: {host.tasks} tasks and {host.slots} devices; one task a device")
    index, local = _place(allocation, task)
    host = allocation.hosts[index]
    visible = ",".join(str(device.id) for device in sorted(host.devices, key=lambda device: device.id))
    return {
        "RANK_ID": str(rank),
        "RANK_SIZE": str(allocation.tasks),
        "ASCEND_DEVICE_ID": str(local),
        "DEVICE_ID": str(local),
        **({"ASCEND_RT_VISIBLE_DEVICES": visible} if visible else {}),
    }


def _place(allocation: Allocation, task: int) -> tuple[int, int]:
    """The index of a task's host and its number there, as Slurm has them."""
    if not 0 <= task < allocation.tasks:
        raise HostfileError(f"task {task} of {allocation.tasks}; tasks count from 0")
    return allocation.places[task]


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
