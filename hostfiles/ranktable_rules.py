"""What makes a rank table one that HCCL takes: checked on every table that is written and on every one that is read.

The rules are those of HCCL's topoinfo_ranktable*.cc and of its page on rank tables.
"""

from __future__ import annotations

import re
from collections import namedtuple
from collections.abc import Iterable, Iterator, Mapping, Sequence

from hostfiles.allocation import Device
from hostfiles.errors import HostfileError

TYPE_CHECKING = False  # as in `typing` (see hostfiles.allocation)
if TYPE_CHECKING:
    from typing import Final, Never

MAX_SERVER_ID: Final = 64  # characters; SERVERID_MAX_LENGTH
LAST_DEVICE: Final = 15  # of a server of 16; one of 8 ends at 7

_BYTE: Final = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4: Final = re.compile(r"\.".join([_BYTE] * 4), re.ASCII)
_IPV4_LINES: Final = re.compile(rf"(?:{_IPV4.pattern}\n)*", re.ASCII)


class Server(namedtuple("Server", "id devices name")):
    """One server: its `server_id`, its devices in rank order, and the name that an error gives it."""

    __slots__ = ()
    id: str
    devices: tuple[Device, ...]
    name: str  # empty where only the id is known

    def __str__(self) -> str:
        return f"{self.name} ({self.id})" if self.name else f"server {self.id}"


def check(
    servers: Sequence[Server], *, uneven: bool = False, ips_needed: bool = True, last_device: int = LAST_DEVICE
) -> None:
    """Raise HostfileError for the first rule that servers or devices break.

    `uneven` allows unlike numbers of devices (910B). `ips_needed`: whether devices need addresses as soon as there are
    two servers; one server never needs them.
    """
    if not servers:
        raise HostfileError("a rank table without servers; at least one is needed")
    for server in servers:
        if not 0 < len(server.id) <= MAX_SERVER_ID:
            refuse(server, f"a server_id of {len(server.id)} characters; 1 to {MAX_SERVER_ID} are allowed")
    once(("server_id " + server.id, str(server)) for server in servers)
    for server in servers:
        ids = [device.id for device in server.devices]
        if not ids:
            refuse(server, "no devices; a server has at least one")
        if max(ids) > last_device:
            refuse(server, f"device {max(ids)}; physical ids are 0 to {last_device} here")
        if len(set(ids)) < len(ids):
            refuse(server, f"devices {ids}; each stands there once")
        if len(ids) != len(servers[0].devices) and not uneven:
            refuse(server, f"{len(ids)} devices, and {servers[0]} has {len(servers[0].devices)}; all have as many")
    _check_ips(servers, needed=ips_needed and len(servers) > 1)


def check_super_pods(servers: Sequence[Server], pods: Mapping[str, Sequence[str]]) -> None:
    """Raise HostfileError where pods (id: its server_ids) do not hold every server once, or a device has no id there.

    A super_device_id stands once in a pod; another pod may have the same one.
    """
    if "" in pods:
        raise HostfileError("a super pod without an id; super_pod_id is a text of its own for each")
    pod_of = {server_id: pod for pod, server_ids in pods.items() for server_id in server_ids}
    known = {server.id for server in servers}
    once((f"server_id {server_id}", f"super pod {pod}") for pod, ids in pods.items() for server_id in ids)
    for server_id, pod in pod_of.items():
        if server_id not in known:
            raise HostfileError(f"super pod {pod} holds server {server_id}, and server_list does not")
    for server in servers:
        if server.id not in pod_of:
            refuse(server, "it is in no super pod; each server is in one")
    for server, device in each(servers):
        if device.super_id is None:
            refuse(server, f"device {device.id} has no super_device_id; `npu-smi info -t spod-info` shows it as SDID")
    once(
        (f"super_device_id {device.super_id} of super pod {pod_of[server.id]}", _place(server, device))
        for server, device in each(servers)
    )


def each(servers: Iterable[Server]) -> Iterator[tuple[Server, Device]]:
    """Every device with its server, in rank order."""
    return ((server, device) for server in servers for device in server.devices)


def once(places: Iterable[tuple[str, str]]) -> None:
    """Raise HostfileError where two places, each a thing and where it stands, have the same thing."""
    seen: dict[str, str] = {}
    for what, where in places:
        if what in seen:
            raise HostfileError(f"{what} stands twice: {seen[what]} and {where}")
        seen[what] = where


def refuse(server: Server, what: str) -> Never:
    """Raise HostfileError about one server."""
    raise HostfileError(f"{server}: {what}")


def address(text: str) -> str | None:
    """An IPv4 or IPv6 address in the one form that two equal ones share; None for any other text."""
    if _IPV4.fullmatch(text):
        return text
    import ipaddress  # noqa: PLC0415 - 3 ms that only IPv6 needs

    try:
        return str(ipaddress.IPv6Address(text)) if "%" not in text else None
    except ValueError:
        return None


def _check_ips(servers: Sequence[Server], *, needed: bool) -> None:
    """Addresses of devices: there where they are needed, each once, all of one family."""
    known = [device.ip for server in servers for device in server.devices if device.ip]
    complete = len(known) == sum(len(server.devices) for server in servers)
    if (complete or not needed) and len(set(known)) == len(known) and _all_ipv4(known):
        return  # the usual table: nothing more for 10,000 devices
    forms: dict[bool, str] = {}
    for server, device in each(servers):
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
    once((f"device_ip {address(device.ip)}", _place(server, device)) for server, device in each(servers) if device.ip)


def _all_ipv4(texts: Sequence[str]) -> bool:
    """Whether each is an IPv4 address: one match of all takes half the time of one for each."""
    lines = "\n".join([*texts, ""])
    return lines.count("\n") == len(texts) and _IPV4_LINES.fullmatch(lines) is not None


def _place(server: Server, device: Device) -> str:
    return f"{server}, device {device.id}"
