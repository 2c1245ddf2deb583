"""Reading rank tables strictly: what HCCL would refuse or misread is an error here, with the place where it stands.

Template 2 has no ranks. HCCL gives them by server_id compared as text, then by device id, whatever the file's own order
(GetSortClouldRankList: a std::map of strings, then devicePhyId); so does this. Keys that are not known are left alone:
1.0 and 1.2 have optional ones.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Mapping

from hostfiles.allocation import Device
from hostfiles.errors import HostfileError
from hostfiles.ranktable import COMPLETED, text_1_0
from hostfiles.ranktable_json import UnfinishedError, count, number, objects, string, whole
from hostfiles.ranktable_rules import Server, check, check_super_pods, once

__all__ = ["Table", "UnfinishedError", "convert", "parse"]

TYPE_CHECKING = False  # as in `typing` (see hostfiles.allocation)
if TYPE_CHECKING:
    from typing import Final

_KNOWN: Final = "1.0, 1.2 and the template without a version are known"


class Table(namedtuple("Table", "version servers super_pods")):
    """A table that was read: its servers in rank order, and of 1.2 the super pods, id: server_ids."""

    __slots__ = ()
    version: str  # "1.0" or "1.2"; empty for template 2
    servers: tuple[Server, ...]
    super_pods: Mapping[str, tuple[str, ...]]


def parse(text: str, *, uneven: bool = False) -> Table:
    """The table in a file's text. Raises UnfinishedError where waiting may help, else HostfileError for a broken rule.

    `uneven` allows unlike numbers of devices (910B).
    """
    top = whole(text)
    status = string(top, "status", "rank table")
    if status != COMPLETED:
        raise UnfinishedError(f"rank table: status is {status[:40]!r}; it is read when it is {COMPLETED!r}")
    version = string(top, "version", "rank table") if "version" in top else ""
    if version not in ("", "1.0", "1.2"):
        raise HostfileError(f"rank table: version is {version[:40]!r}; {_KNOWN}")
    servers = _server_list(top, version) if version else _group_list(top)
    pods = _super_pods(top) if version == "1.2" else {}
    check(servers, uneven=uneven, ips_needed=version != "1.2" or len(pods) > 1)
    if pods:
        check_super_pods(servers, pods)
    return Table(version, servers, pods)


def convert(text: str, *, uneven: bool = False) -> str:
    """A table as version 1.0: template 2 with the ranks that HCCL gives it; 1.0 itself, checked, word for word.

    Raises as `parse`, and HostfileError for 1.2, which would lose its super pods.
    """
    return as_1_0(text, parse(text, uneven=uneven), uneven=uneven)


def as_1_0(text: str, table: Table, *, uneven: bool = False) -> str:
    """`convert` of a text that was read: `table` is what `parse` made of it."""
    if table.version == "1.2":
        raise HostfileError("rank table: version 1.2 has super pods, and 1.0 cannot hold them; use it as it is")
    return text if table.version else text_1_0(table.servers, uneven=uneven)


def _server_list(top: Mapping[str, object], version: str) -> tuple[Server, ...]:
    """The servers of 1.0 and 1.2 in the order of their ranks."""
    nodes = objects(top, "server_list", "rank table")
    if "server_count" in top:  # HCCL counts by itself where it is missing
        count(top, "server_count", len(nodes), "rank table")
    ranked: list[tuple[int, int, Device]] = []
    ids = [string(node, "server_id", f"server_list[{place}]") for place, node in enumerate(nodes)]
    for place, node in enumerate(nodes):
        where = f"server {ids[place]}"
        for device_node in objects(node, "device", where):
            device = _device(device_node, where, has_super_id=version == "1.2")
            ranked.append((number(device_node, "rank_id", f"{where}, device {device.id}"), place, device))
    ranked.sort(key=lambda item: item[0])
    _check_ranks([(rank, f"server {ids[place]}, device {device.id}", place) for rank, place, device in ranked])
    devices: dict[int, list[Device]] = {}
    for _, place, device in ranked:
        devices.setdefault(place, []).append(device)
    return tuple(Server(ids[place], tuple(found), "") for place, found in devices.items())


def _check_ranks(ranked: list[tuple[int, str, int]]) -> None:
    """(rank, where, server) by rank: 0, 1, 2, … and one server after the other."""
    once((f"rank_id {rank}", where) for rank, where, _ in ranked)
    done: set[int] = set()
    last = -1
    for wanted, (rank, where, place) in enumerate(ranked):
        if rank != wanted:
            raise HostfileError(
                f"{where}: rank_id is {rank}, and no device has {wanted}; ranks are 0 to {len(ranked) - 1}"
            )
        if place in done:
            raise HostfileError(
                f"{where}: rank_id {rank} comes after those of another server; ranks are not interleaved"
            )
        if place != last:
            done.add(last)
            last = place


def _group_list(top: Mapping[str, object]) -> tuple[Server, ...]:
    """The servers of template 2 in the order of the ranks that HCCL gives them; pods of one server are one."""
    groups = objects(top, "group_list", "rank table")
    count(top, "group_count", len(groups), "rank table")
    pods: list[tuple[str, str]] = []
    devices: dict[str, list[Device]] = {}
    for place, group in enumerate(groups):
        where = f"group {string(group, 'group_name', f'group_list[{place}]')}"
        instances = objects(group, "instance_list", where)
        count(group, "instance_count", len(instances), where)
        total = 0
        for instance in instances:
            pod = string(instance, "pod_name", where)
            pods.append((f"pod_name {pod}", where))
            found = [_device(node, f"pod {pod}") for node in objects(instance, "devices", f"pod {pod}")]
            total += len(found)
            devices.setdefault(string(instance, "server_id", f"pod {pod}"), []).extend(found)
        count(group, "device_count", total, where)
    once(pods)
    return tuple(
        Server(server_id, tuple(sorted(devices[server_id], key=lambda device: device.id)), "")
        for server_id in sorted(devices, key=str.encode)
    )


def _super_pods(top: Mapping[str, object]) -> dict[str, tuple[str, ...]]:
    """The server_ids of each super pod; none where the key is missing: HCCL takes that for a table without pods."""
    if "super_pod_list" not in top:
        return {}
    found: list[tuple[str, tuple[str, ...]]] = []
    for place, node in enumerate(objects(top, "super_pod_list", "rank table")):
        pod = string(node, "super_pod_id", f"super_pod_list[{place}]")
        where = f"super pod {pod}"
        found.append((pod, tuple(string(server, "server_id", where) for server in objects(node, "server_list", where))))
    once((f"super_pod_id {pod}", "super_pod_list") for pod, _ in found)
    return dict(found)


def _device(node: Mapping[str, object], where: str, *, has_super_id: bool = False) -> Device:
    device_id = number(node, "device_id", where)
    here = f"{where}, device {device_id}"
    ip = string(node, "device_ip", here) if "device_ip" in node else ""
    super_id = number(node, "super_device_id", here) if has_super_id and "super_device_id" in node else None
    return Device(device_id, ip, super_id)
