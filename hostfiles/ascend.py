"""Variables of one Ascend process: one task per device, with a rank table or with MindSpore's dynamic cluster.

With a rank table, the rank of a process is the rank of its device: by host, then by device. In a dynamic cluster it is
the task's number. Device ids are logical: ASCEND_RT_VISIBLE_DEVICES gives the driver the physical ids of the job's
devices, and the program sees these devices as 0, 1, …. If the user gives a rank table, the table and not Slurm's order
decides which ranks a host has (`of_table`, `rank_in_table`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from hostfiles.allocation import Allocation, Host, exports
from hostfiles.nodelist import HostfileError
from hostfiles.ranktable import Server, address


def table_variables(allocation: Allocation, task: int, path: str) -> dict[str, str]:
    """Return the variables of task `task` (from 0) with the rank table in the file `path`.

    HCCL opens only an absolute path that contains `.json` once, at its end. Raise HostfileError for any other path, an
    unknown task, and a host that does not have one task per device.
    """
    if not path.startswith("/") or path.find(".json") != len(path) - len(".json"):
        raise HostfileError(f"{path[:80]!r} is no file for HCCL; its path is absolute and has .json once, at its end")
    index, local = allocation.place(task)
    rank = sum(host.tasks for host in allocation.hosts[:index]) + local  # in the order of the table, not in Slurm's
    return {"RANK_TABLE_FILE": path, **_process(allocation, task, rank)}


def cluster_variables(allocation: Allocation, task: int, port: int) -> dict[str, str]:
    """Return the variables of task `task` without a rank table. The task is a worker, and MS_NODE_ID is its rank.

    Raise HostfileError for an unknown task, a host that does not have one task per device, a port outside 1024-65535,
    and if the first host or the task's host has no IP address.
    """
    index, _ = allocation.place(task)
    host = allocation.hosts[index]
    return {
        "MS_ROLE": "MS_WORKER",
        **_cluster(allocation, host, port),
        "MS_NODE_ID": str(task),
        **_process(allocation, task, task),
    }


def scheduler_variables(allocation: Allocation, port: int) -> dict[str, str]:
    """Return the variables of the dynamic cluster's scheduler: one more process of the program, on the first host."""
    return {"MS_ROLE": "MS_SCHED", **_cluster(allocation, allocation.hosts[0], port)}


def of_table(servers: Sequence[Server]) -> Allocation:
    """Make an allocation from a table's servers. Task N of the allocation is rank N of the table.

    Raise HostfileError if the ranks of a server are not in the order of its device ids: logical ids are in this order.
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
    """Return the rank of a task in a table. `addresses` are those of the task's host; one must be a server_id.

    Raise HostfileError for an unknown task, a host that is not in the table, and if there is not one task per device.
    """
    devices = sum(len(server.devices) for server in servers)
    if devices != allocation.tasks:
        raise HostfileError(f"{allocation.tasks} tasks, and {devices} devices in the rank table; one task a device")
    index, local = allocation.place(task)
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
    """Return shell lines that export a process's variables. `table` is the path of the rank table; empty: no table.

    Without a table, `task` None means the scheduler of the dynamic cluster. With a table it raises HostfileError.
    """
    if table:
        if task is None:
            raise HostfileError("a rank table has no scheduler; say for which rank with --task, or ask in a step")
        return exports(table_variables(allocation, task, table))
    return exports(scheduler_variables(allocation, port) if task is None else cluster_variables(allocation, task, port))


def _process(allocation: Allocation, task: int, rank: int) -> dict[str, str]:
    """Return the variables of a task with and without a table. DEVICE_ID is the older name of ASCEND_DEVICE_ID."""
    for host in allocation.hosts:
        if host.tasks != host.slots:
            raise HostfileError(f"{host.name}: {host.tasks} tasks and {host.slots} devices; one task a device")
    index, local = allocation.place(task)
    host = allocation.hosts[index]
    visible = ",".join(str(device.id) for device in sorted(host.devices, key=lambda device: device.id))
    return {
        "RANK_ID": str(rank),
        "RANK_SIZE": str(allocation.tasks),
        "ASCEND_DEVICE_ID": str(local),
        "DEVICE_ID": str(local),
        **({"ASCEND_RT_VISIBLE_DEVICES": visible} if visible else {}),
    }


def _cluster(allocation: Allocation, host: Host, port: int) -> dict[str, str]:
    """Return the variables of scheduler and workers. With IPv6, MindSpore also needs the address of the process."""
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
