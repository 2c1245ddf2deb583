"""Ascend rank tables: the rank of each device of each server. HCCL, Ascend's collective library, reads three forms.

- 1.0 (`server_list`): slurm_plugin gives programs this form.
- template 2 (`group_list`, no version, no ranks): training platforms write this form.
- 1.2: version 1.0 with super pods.

`check` applies HCCL's rules (its topoinfo_ranktable*.cc, and its page on rank tables) to tables read and written.

Every scalar is a JSON string, because HCCL refuses numbers. Ranks are in the order of the hosts, then of device ids.
"""

from __future__ import annotations

import json
import re
from collections import namedtuple
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from operator import attrgetter

from hostfiles.allocation import Allocation, Device
from hostfiles.nodelist import HostfileError

TYPE_CHECKING = False  # as in `typing` (see hostfiles.nodelist)
if TYPE_CHECKING:
    from typing import Final, Never

FILE_NAME: Final = "jobstart_hccl.json"  # the name that training platforms use
COMPLETED: Final = "completed"
INITIALIZING: Final = '{"status": "initializing"}\n'  # the content of the file until the table is written

MAX_SERVER_ID: Final = 64  # characters; SERVERID_MAX_LENGTH
LAST_DEVICE: Final = 15  # on a server with 16 devices; with 8 devices it is 7

_BY_ID: Final = attrgetter("id")
_quoted: Final = json.JSONEncoder().encode  # a third of the time of json.dumps for a short text
_LAST_DEVICE_OF_TEMPLATE_2: Final = 7  # HCCL's limit (HCCL_AISERVER_DEVICE_NUM)
_BYTE: Final = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4: Final = re.compile(r"\.".join([_BYTE] * 4), re.ASCII)
_IPV4_LINES: Final = re.compile(rf"(?:{_IPV4.pattern}\n)*", re.ASCII)


class Server(namedtuple("Server", "id devices name")):
    """One server: its `server_id`, its devices in rank order, and its name for errors."""

    __slots__ = ()
    id: str
    devices: tuple[Device, ...]
    name: str  # empty: only the id is known

    def __str__(self) -> str:
        return f"{self.name} ({self.id})" if self.name else f"server {self.id}"


def version_1_0(allocation: Allocation, *, uneven: bool = False) -> str:
    """Return the table of an allocation whose hosts have an address and devices.

    `uneven`: servers may have different numbers of devices (910B). Raise HostfileError if HCCL would refuse the table.
    """
    return text_1_0(_servers(allocation), uneven=uneven)


def template_2(allocation: Allocation, *, uneven: bool = False) -> str:
    """Return the table without ranks, one instance per server, in the order of HCCL's ranks (`in_text_order`).

    A pod's name ends with its position in that order, because the start script of ModelArts uses this number.
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


def version_1_2(allocation: Allocation, *, uneven: bool = False) -> str:
    """Return the table of one super pod, "0". Raise HostfileError if a device has no `super_id`.

    Inside a pod, devices use the pod's links and need no address.
    """
    servers = _servers(allocation)
    for server, device in by_rank(servers):
        if device.super_id is None:
            refuse(
                server,
                f"device {device.id} has no super_device_id; `npu-smi info -t spod-info` shows it as SDID, and a node's"
                f" line has it behind the address: {device.id}={device.ip}/SDID",
            )
    ids = [server.id for server in servers]
    check(servers, uneven=uneven, ips_needed=False)
    check_super_pods(servers, {"0": ids})
    pod = json.dumps({"super_pod_id": "0", "server_list": [{"server_id": server_id} for server_id in ids]})
    return _text("1.2", servers, f', "super_pod_list": [\n{pod}\n]')


def text_1_0(servers: Sequence[Server], *, uneven: bool = False) -> str:
    """Return the table of these servers in this order. Raise HostfileError if HCCL would refuse the table."""
    check(servers, uneven=uneven)
    return _text("1.0", servers)


def in_text_order(allocation: Allocation) -> Allocation:
    """Sort the hosts by address, compared as text: 10.0.0.10 comes before 10.0.0.9.

    HCCL ranks the servers of template 2 in this order (its devMap_ is a std::map of strings). MindSpore's page on rank
    tables requires ranks in "the dictionary order of server_id" also in 1.0.
    """
    hosts = sorted(allocation.hosts, key=lambda host: host.address)
    return Allocation(tuple(hosts), allocation.job_id, allocation.step_id)


def _servers(allocation: Allocation) -> tuple[Server, ...]:
    """Make servers from the hosts; sort devices by id. Raise HostfileError for a host without address or devices."""
    for host in allocation.hosts:
        if not host.address or not host.devices:
            missing = "devices are" if host.address else "address is"
            raise HostfileError(f"{host.name}: its {missing} not known; a rank table needs both, from each node")
        if address(host.address) is None:
            raise HostfileError(f"{host.name}: {host.address[:60]!r} is no IPv4 or IPv6 address, and server_id is one")
    return tuple(Server(host.address, tuple(sorted(host.devices, key=_BY_ID)), host.name) for host in allocation.hosts)


def _text(version: str, servers: Sequence[Server], rest: str = "") -> str:
    """Return the table in version 1.0 or 1.2: a line for each server, ranks in the order of `servers`.

    This takes half the time of json.dumps. Numbers and checked addresses need no escapes.
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
    """Return the JSON of the devices. A device without an address has no key `device_ip`, as on HCCL's page."""
    return ", ".join(
        [
            f'{{"device_id": "{number}", "device_ip": "{ip}"{rest}}}' if ip else f'{{"device_id": "{number}"{rest}}}'
            for (number, ip, _), rest in zip(server.devices, rests, strict=False)
        ]
    )


def check(
    servers: Sequence[Server], *, uneven: bool = False, ips_needed: bool = True, last_device: int = LAST_DEVICE
) -> None:
    """Raise HostfileError for the first rule that servers or devices break.

    `uneven`: servers may have different numbers of devices (910B). `ips_needed`: whether devices need addresses if
    there are two or more servers. The devices of a single server never need addresses.
    """
    if not servers:
        raise HostfileError("a rank table without servers; at least one is needed")
    for server in servers:
        if not 0 < len(server.id) <= MAX_SERVER_ID:
            refuse(server, f"a server_id of {len(server.id)} characters; 1 to {MAX_SERVER_ID} are allowed")
    refuse_duplicates(("server_id " + server.id, str(server)) for server in servers)
    for server in servers:
        ids = [device.id for device in server.devices]
        if not ids:
            refuse(server, "no devices; a server has at least one")
        if max(ids) > last_device:
            refuse(server, f"device {max(ids)}; physical ids are 0 to {last_device} here")
        if len(set(ids)) < len(ids):
            refuse(server, f"devices {ids}; each appears once")
        if len(ids) != len(servers[0].devices) and not uneven:
            refuse(
                server, f"{len(ids)} devices, and {servers[0]} has {len(servers[0].devices)}; all need the same number"
            )
    _check_ips(servers, needed=ips_needed and len(servers) > 1)


def check_super_pods(servers: Sequence[Server], pods: Mapping[str, Sequence[str]]) -> None:
    """Raise HostfileError unless each server is in one of `pods` (id: its server_ids) and each device has a super_id.

    A super_device_id must be unique in its pod. Another pod may have the same one.
    """
    if "" in pods:
        raise HostfileError("a super pod without an id; each needs its own super_pod_id")
    pod_of = {server_id: pod for pod, server_ids in pods.items() for server_id in server_ids}
    known = {server.id for server in servers}
    refuse_duplicates((f"server_id {server_id}", f"super pod {pod}") for pod, ids in pods.items() for server_id in ids)
    for server_id, pod in pod_of.items():
        if server_id not in known:
            raise HostfileError(f"super pod {pod} holds server {server_id}, and server_list does not")
    for server in servers:
        if server.id not in pod_of:
            refuse(server, "it is in no super pod; each server is in one")
    for server, device in by_rank(servers):
        if device.super_id is None:
            refuse(server, f"device {device.id} has no super_device_id; `npu-smi info -t spod-info` shows it as SDID")
    refuse_duplicates(
        (f"super_device_id {device.super_id} of super pod {pod_of[server.id]}", _place(server, device))
        for server, device in by_rank(servers)
    )


def by_rank(servers: Iterable[Server]) -> Iterator[tuple[Server, Device]]:
    """Return every device with its server, in rank order."""
    return ((server, device) for server in servers for device in server.devices)


def refuse_duplicates(places: Iterable[tuple[str, str]]) -> None:
    """Raise HostfileError for the first duplicate in `places`, pairs of a value and the place where it is."""
    seen: dict[str, str] = {}
    for what, where in places:
        if what in seen:
            raise HostfileError(f"{what} appears twice: {seen[what]} and {where}")
        seen[what] = where


def refuse(server: Server, what: str) -> Never:
    """Raise HostfileError about one server."""
    raise HostfileError(f"{server}: {what}")


def address(text: str) -> str | None:
    """Return an IPv4 or IPv6 address in its canonical form; None for any other text."""
    if _IPV4.fullmatch(text):
        return text
    import ipaddress  # noqa: PLC0415 - 3 ms, for IPv6 alone

    try:
        return str(ipaddress.IPv6Address(text)) if "%" not in text else None
    except ValueError:
        return None


def _check_ips(servers: Sequence[Server], *, needed: bool) -> None:
    """Check the addresses of devices: complete if `needed`, without duplicates, all IPv4 or all IPv6."""
    known = [device.ip for server in servers for device in server.devices if device.ip]
    complete = len(known) == sum(len(server.devices) for server in servers)
    if (complete or not needed) and len(set(known)) == len(known) and _all_ipv4(known):
        return  # the usual table, which may have 10,000 devices
    forms: dict[bool, str] = {}
    for server, device in by_rank(servers):
        if not device.ip and needed:
            refuse(server, f"device {device.id} has no address; with more than one server each device has one")
        if device.ip:
            form = address(device.ip)
            if form is None:
                refuse(
                    server, f"device {device.id} has the address {device.ip[:60]!r}; one IPv4 or IPv6 address is wanted"
                )
            forms.setdefault(":" in form, f"{device.ip} ({_place(server, device)})")
    if len(forms) > 1:
        raise HostfileError(f"addresses of two families: {forms[False]} and {forms[True]}; all devices have the same")
    refuse_duplicates(
        (f"device_ip {address(device.ip)}", _place(server, device)) for server, device in by_rank(servers) if device.ip
    )


def _all_ipv4(texts: Sequence[str]) -> bool:
    """Return whether each text is an IPv4 address. One match of all texts takes half the time."""
    lines = "\n".join([*texts, ""])
    return lines.count("\n") == len(texts) and _IPV4_LINES.fullmatch(lines) is not None


def _place(server: Server, device: Device) -> str:
    return f"{server}, device {device.id}"
