"""Ascend rank tables: which device of which server is which rank. Three forms, read by HCCL, the collective library.

- 1.0 (`server_list`): what this project hands to programs.
- template 2 (`group_list`, no version, no ranks): what training platforms hand out; their programs convert it.
- 1.2: 1.0 with super pods.

Every scalar is a JSON string: HCCL refuses a number. Ranks go over the hosts in their order and on each by device id.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from operator import attrgetter

from hostfiles.allocation import Allocation
from hostfiles.errors import HostfileError
from hostfiles.ranktable_rules import Server, address, check, check_super_pods, each, refuse

TYPE_CHECKING = False  # as in `typing` (see hostfiles.allocation)
if TYPE_CHECKING:
    from typing import Final

FILE_NAME: Final = "jobstart_hccl.json"  # the platforms' name for it
COMPLETED: Final = "completed"
INITIALIZING: Final = '{"status": "initializing"}\n'  # the file before there is a table

_BY_ID: Final = attrgetter("id")
_quoted: Final = json.JSONEncoder().encode  # a third of json.dumps' time for a short text
_LAST_DEVICE_OF_TEMPLATE_2: Final = 7  # HCCL's own reading of it ends there (HCCL_AISERVER_DEVICE_NUM)


def version_1_0(allocation: Allocation, *, uneven: bool = False) -> str:
    """The table of an allocation whose hosts have an address and devices.

    `uneven` allows unlike numbers of devices (910B). Raises HostfileError for a table that HCCL would refuse.
    """
    return text_1_0(_servers(allocation), uneven=uneven)


def template_2(allocation: Allocation, *, uneven: bool = False) -> str:
    """The table without ranks, one instance a server, in the order in which its readers give them (`in_text_order`).

    A pod's name ends with its place in that order, for ModelArts' own start script goes by this number.
    """
    servers = _servers(in_text_order(allocation))
    check(servers, uneven=uneven, last_device=_LAST_DEVICE_OF_TEMPLATE_2)
    instances = ",\n".join(
        f'{{"pod_name": "{server.name}-{place}", "server_id": {_quoted(server.id)},'
        f' "devices": [{_devices(server, repeat(""))}]}}'
        for place, server in enumerate(servers)
    )
    device_count = sum(len(server.devices) for server in servers)
    return (
        f'{{"status": "{COMPLETED}", "group_count": "1", "group_list": [\n'
        f'{{"group_name": "job-{allocation.job_id}", "device_count": "{device_count}",'
        f' "instance_count": "{len(servers)}", "instance_list": [\n{instances}\n]}}\n]}}\n'
    )


def version_1_2(allocation: Allocation, super_pods: Mapping[str, str] | None = None, *, uneven: bool = False) -> str:
    """The table of super pods: each device has a `super_id`, and `super_pods` is the id of each host's pod.

    None means one pod, "0". Inside one pod no device needs an address: it has the pod's own links.
    """
    servers = _servers(allocation)
    for server, device in each(servers):
        if device.super_id is None:
            refuse(
                server,
                f"device {device.id} has no super_device_id; `npu-smi info -t spod-info` shows it as SDID, and a node's"
                f" line has it behind the address: {device.id}={device.ip}/SDID",
            )
    pods: dict[str, list[str]] = {}
    for server in servers:
        if super_pods is not None and server.name not in super_pods:
            raise HostfileError(f"{server} is in no super pod; each host of the table is in one")
        pods.setdefault("0" if super_pods is None else super_pods[server.name], []).append(server.id)
    check(servers, uneven=uneven, ips_needed=len(pods) > 1)
    check_super_pods(servers, pods)
    pod_list = ",\n".join(
        json.dumps({"super_pod_id": pod, "server_list": [{"server_id": server_id} for server_id in ids]})
        for pod, ids in pods.items()
    )
    return _text("1.2", servers, f', "super_pod_list": [\n{pod_list}\n]')


def text_1_0(servers: Sequence[Server], *, uneven: bool = False) -> str:
    """The table of these servers in this order. Raises HostfileError for one that HCCL would refuse."""
    check(servers, uneven=uneven)
    return _text("1.0", servers)


def in_text_order(allocation: Allocation) -> Allocation:
    """The same hosts by address, compared as text: 10.0.0.10 comes before 10.0.0.9.

    HCCL ranks the servers of template 2 so (its devMap_ is a std::map of strings), and MindSpore's page on rank tables
    wants ranks in "the dictionary order of server_id" in 1.0 too.
    """
    hosts = sorted(allocation.hosts, key=lambda host: host.address)
    return Allocation(tuple(hosts), allocation.job_id, allocation.step_id)


def _servers(allocation: Allocation) -> tuple[Server, ...]:
    """The hosts as servers, devices by id. Raises HostfileError for a host whose address or devices are not known."""
    for host in allocation.hosts:
        if not host.address or not host.devices:
            missing = "devices are" if host.address else "address is"
            raise HostfileError(
                f"{host.name}: its {missing} not known; a rank table needs both, and each node says its own"
            )
        if address(host.address) is None:
            raise HostfileError(f"{host.name}: {host.address[:60]!r} is no IPv4 or IPv6 address, and server_id is one")
    return tuple(Server(host.address, tuple(sorted(host.devices, key=_BY_ID)), host.name) for host in allocation.hosts)


def _text(version: str, servers: Sequence[Server], rest: str = "") -> str:
    """What 1.0 and 1.2 share, a line for each server, ranks in their order.

    Written by hand, which takes half of json.dumps' time: numbers and checked addresses have nothing to escape.
    """
    lines = []
    first = 0
    for server in servers:
        ranks = [f', "rank_id": "{rank}"' for rank in range(first, first + len(server.devices))]
        if version == "1.2":
            ranks = [f', "super_device_id": "{d.super_id}"{r}' for d, r in zip(server.devices, ranks, strict=True)]
        first += len(ranks)
        lines.append(f'{{"server_id": {_quoted(server.id)}, "device": [{_devices(server, ranks)}]}}')
    return (
        f'{{"version": "{version}", "status": "{COMPLETED}", "server_count": "{len(servers)}", "server_list": [\n'
        + ",\n".join(lines)
        + f"\n]{rest}}}\n"
    )


def _devices(server: Server, rests: Iterable[str]) -> str:
    """Id, address and the rest of each device; without an address there is no key, as HCCL's page has it."""
    return ", ".join(
        [
            f'{{"device_id": "{number}", "device_ip": "{ip}"{rest}}}' if ip else f'{{"device_id": "{number}"{rest}}}'
            for (number, ip, _), rest in zip(server.devices, rests, strict=False)
        ]
    )
