"""Read rank tables strictly. A value that HCCL would refuse or misread is an error that names its place in the table.

Template 2 has no ranks. This module assigns them as HCCL does: by server_id compared as text, then by device id. The
order in the file does not matter (GetSortClouldRankList: a std::map of strings, then devicePhyId). Unknown keys are
ignored, because all forms have keys that are not needed here.

The lab form (`deploy_mode: lab`, of MindSpore before 0.3) is read only. It also has a `group_list`, and a rank in each
instance, which is one device. Its `device_num` is ignored: no page says whether it counts the devices of one server.
"""

from __future__ import annotations

import json
import re
from collections import namedtuple
from collections.abc import Mapping, Sequence

from hostfiles.allocation import Device
from hostfiles.nodelist import HostfileError
from hostfiles.ranktable import COMPLETED, Server, check, check_super_pods, refuse_duplicates, text_1_0

TYPE_CHECKING = False  # as in `typing`, which is slow to import
if TYPE_CHECKING:
    from typing import Any, Final, TypeAlias

    Group: TypeAlias = tuple[str, Mapping[str, Any], Sequence[Mapping[str, Any]]]  # its place, the group, its instances

_LONGEST: Final = 127  # characters of a name; GROUP_NAME_MAX_LEN
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)
_KNOWN: Final = "1.0, 1.2 and the template without a version are known"


class UnfinishedError(HostfileError):
    """The table is still being written: its JSON is incomplete, or its `status` is not `completed`."""


class Table(namedtuple("Table", "version servers super_pods")):
    """A rank table: its servers in rank order, and for version 1.2 the server_ids of each super pod."""

    __slots__ = ()
    version: str  # "1.0" or "1.2"; empty for template 2 and the lab form
    servers: tuple[Server, ...]
    super_pods: Mapping[str, tuple[str, ...]]


def parse(text: str, *, uneven: bool = False) -> Table:
    """Parse a rank table. Raise UnfinishedError if the table may still be completed, HostfileError if it breaks a rule.

    `uneven`: servers may have different numbers of devices (910B).
    """
    top = _whole(text)
    status = _string(top, "status", "rank table")
    if status != COMPLETED:
        raise UnfinishedError(f"rank table: status is {status[:40]!r}; it is read when it is {COMPLETED!r}")
    version = _string(top, "version", "rank table") if "version" in top else ""
    if version not in ("", "1.0", "1.2"):
        raise HostfileError(f"rank table: version is {version[:40]!r}; {_KNOWN}")
    servers = _server_list(top, version) if version else _group_list(top)
    pods = _super_pods(top) if version == "1.2" else {}
    check(servers, uneven=uneven, ips_needed=version != "1.2" or len(pods) > 1)
    if pods:
        check_super_pods(servers, pods)
    return Table(version, servers, pods)


def as_1_0(text: str, table: Table, *, uneven: bool = False) -> str:
    """Return a rank table as version 1.0. `text` is the table as it was read, `table` is what `parse` returned for it.

    Template 2 gets the ranks that HCCL would assign, and the lab form keeps its own. Version 1.0 is returned unchanged.
    Raise HostfileError for version 1.2: version 1.0 has no super pods.
    """
    if table.version == "1.2":
        raise HostfileError("rank table: version 1.2 has super pods, and 1.0 cannot hold them; use it as it is")
    return text if table.version else text_1_0(table.servers, uneven=uneven)


def _server_list(top: Mapping[str, object], version: str) -> tuple[Server, ...]:
    """Return the servers of 1.0 and 1.2 in the order of their ranks."""
    nodes = _objects(top, "server_list", "rank table")
    if "server_count" in top:  # optional: HCCL counts the servers itself
        _count(top, "server_count", len(nodes), "rank table")
    ranked: list[tuple[int, int, Device]] = []
    ids = [_string(node, "server_id", f"server_list[{place}]") for place, node in enumerate(nodes)]
    for place, node in enumerate(nodes):
        where = f"server {ids[place]}"
        for device_node in _objects(node, "device", where):
            device = _device(device_node, where, has_super_id=version == "1.2")
            ranked.append((_number(device_node, "rank_id", f"{where}, device {device.id}"), place, device))
    return _in_rank_order(ids, ranked)


def _in_rank_order(ids: Sequence[str], ranked: list[tuple[int, int, Device]]) -> tuple[Server, ...]:
    """Return the servers of devices with ranks: tuples of the rank, the server's place in `ids`, and the device."""
    ranked.sort(key=lambda item: item[0])
    _check_ranks([(rank, f"server {ids[place]}, device {device.id}", place) for rank, place, device in ranked])
    devices: dict[int, list[Device]] = {}
    for _, place, device in ranked:
        devices.setdefault(place, []).append(device)
    return tuple(Server(ids[place], tuple(found), "") for place, found in devices.items())


def _check_ranks(ranked: list[tuple[int, str, int]]) -> None:
    """Check tuples (rank, where, server) that are sorted by rank: ranks are 0, 1, 2, …, consecutive on each server."""
    refuse_duplicates((f"rank_id {rank}", where) for rank, where, _ in ranked)
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
    """Return the servers of template 2, or of the lab form."""
    found = _objects(top, "group_list", "rank table")
    _count(top, "group_count", len(found), "rank table")
    groups = []
    for place, group in enumerate(found):
        name = _string(group, "group_name", f"group_list[{place}]")
        where = f"group {name}" if name else f"group_list[{place}]"
        instances = _objects(group, "instance_list", where)
        _count(group, "instance_count", len(instances), where)
        groups.append((where, group, instances))
    first = groups[0][2][0]
    return _lab(groups) if "rank_id" in first and "pod_name" not in first else _template_2(groups)


def _lab(groups: Sequence[Group]) -> tuple[Server, ...]:
    """Return the servers of the lab form in the order of its ranks."""
    ranked: list[tuple[int, int, Device]] = []
    ids: dict[str, int] = {}  # server_id -> its place
    for where, group, instances in groups:
        servers = set()
        for place, instance in enumerate(instances):
            here = f"{where}, instance {place}"
            nodes = _objects(instance, "devices", here)
            if len(nodes) != 1:
                raise HostfileError(f"{here}: {len(nodes)} devices, and one rank_id; each has its own instance")
            server = ids.setdefault(_string(instance, "server_id", here), len(ids))
            servers.add(server)
            ranked.append((_number(instance, "rank_id", here), server, _device(nodes[0], here)))
        if "server_num" in group:
            _count(group, "server_num", len(servers), where)
    return _in_rank_order(tuple(ids), ranked)


def _template_2(groups: Sequence[Group]) -> tuple[Server, ...]:
    """Return the servers of template 2 in the order of HCCL's ranks. Pods on the same server are merged."""
    pods: list[tuple[str, str]] = []
    devices: dict[str, list[Device]] = {}
    for where, group, instances in groups:
        total = 0
        for instance in instances:
            pod = _string(instance, "pod_name", where)
            pods.append((f"pod_name {pod}", where))
            found = [_device(node, f"pod {pod}") for node in _objects(instance, "devices", f"pod {pod}")]
            total += len(found)
            devices.setdefault(_string(instance, "server_id", f"pod {pod}"), []).extend(found)
        _count(group, "device_count", total, where)
    refuse_duplicates(pods)
    return tuple(
        Server(server_id, tuple(sorted(devices[server_id], key=lambda device: device.id)), "")
        for server_id in sorted(devices, key=str.encode)
    )


def _super_pods(top: Mapping[str, object]) -> dict[str, tuple[str, ...]]:
    """Return the server_ids of each super pod. If the key is missing, there are none, as in HCCL."""
    if "super_pod_list" not in top:
        return {}
    found: list[tuple[str, tuple[str, ...]]] = []
    for place, node in enumerate(_objects(top, "super_pod_list", "rank table")):
        pod = _string(node, "super_pod_id", f"super_pod_list[{place}]")
        where = f"super pod {pod}"
        found.append(
            (pod, tuple(_string(server, "server_id", where) for server in _objects(node, "server_list", where)))
        )
    refuse_duplicates((f"super_pod_id {pod}", "super_pod_list") for pod, _ in found)
    return dict(found)


def _device(node: Mapping[str, object], where: str, *, has_super_id: bool = False) -> Device:
    device_id = _number(node, "device_id", where)
    here = f"{where}, device {device_id}"
    ip = _string(node, "device_ip", here) if "device_ip" in node else ""
    super_id = _number(node, "super_device_id", here) if has_super_id and "super_device_id" in node else None
    return Device(device_id, ip, super_id)


def _whole(text: str) -> dict[str, object]:
    """Return the JSON object in the text. A duplicate key is an error: readers disagree on which value they use."""
    try:
        top = json.loads(text, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        raise UnfinishedError(
            f"rank table: no whole JSON, line {error.lineno} column {error.colno}: {error.msg}"
        ) from None
    except HostfileError:
        raise
    except (RecursionError, ValueError) as error:
        raise HostfileError(f"rank table: no rank table is nested so deep or has such a number ({error})") from None
    if not isinstance(top, dict):
        raise HostfileError(f"rank table: {_kind(top)} where an object is wanted")
    return top


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise HostfileError(f"rank table: the key {twice[:40]!r} appears twice in one object")
    return found


def _string(node: Mapping[str, object], key: str, where: str) -> str:
    """Return a value that is a printable string of at most 127 characters."""
    if key not in node:
        raise HostfileError(f"{where}: {key} is missing")
    value = node[key]
    if not isinstance(value, str):
        raise HostfileError(f"{where}: {key} is {_kind(value)}; every value is a string in a rank table")
    if len(value) > _LONGEST or not value.isprintable():
        raise HostfileError(
            f"{where}: {key} is {value[:40]!r}; at most {_LONGEST} characters, all printable, are wanted"
        )
    return value


def _number(node: Mapping[str, object], key: str, where: str) -> int:
    """Return an integer value, which rank tables write as a string."""
    text = _string(node, key, where)
    if not _NUMBER.fullmatch(text):
        raise HostfileError(f"{where}: {key} is {text[:40]!r}; a whole number from 0 is wanted, as a string")
    return int(text)


def _count(node: Mapping[str, object], key: str, found: int, where: str) -> None:
    """Raise HostfileError where a count differs from the number of things found."""
    if (said := _number(node, key, where)) != found:
        raise HostfileError(f"{where}: {key} is {said}, and {found} are there")


def _objects(node: Mapping[str, object], key: str, where: str) -> list[dict[str, object]]:
    """Return a value that is a list of objects, not empty."""
    if key not in node:
        raise HostfileError(f"{where}: {key} is missing")
    value = node[key]
    if not isinstance(value, list) or not value or not all(isinstance(item, dict) for item in value):
        raise HostfileError(f"{where}: {key} is {_kind(value)}; a list of objects is wanted, and at least one")
    return value


def _kind(value: object) -> str:
    """Describe a JSON value."""
    if isinstance(value, str | int | float | bool | None):
        return json.dumps(value)[:40] if isinstance(value, str | bool | None) else f"the number {str(value)[:40]}"
    return "a list" if isinstance(value, list) else "an object"
