"""Ids and addresses of a node's Ascend devices, as the driver and Slurm write them.

Ids are physical: N of /dev/davinciN, of `address_N` in /etc/hccn.conf, and of `hccn_tool -i N`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from hostfiles.allocation import Allocation, Device, Host
from hostfiles.nodelist import HostfileError
from hostfiles.ranktable import LAST_DEVICE, address

TYPE_CHECKING = False  # as in `typing` (see hostfiles.nodelist)
if TYPE_CHECKING:
    from typing import Final

_KEY: Final = re.compile(r"address_([0-9]{1,3})", re.ASCII)
_IDS: Final = re.compile(r"([0-9]{1,3})(?:-([0-9]{1,3}))?", re.ASCII)
_CONF: Final = "/etc/hccn.conf"

# The variables with the ids of a node's devices; `device_ids` reads the first that is set. Slurm sets the first two.
# Ascend's container runtime reads ASCEND_VISIBLE_DEVICES, Ascend's driver reads ASCEND_RT_VISIBLE_DEVICES.
VISIBLE: Final = "ASCEND_RT_VISIBLE_DEVICES"
ID_VARIABLES: Final = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "ASCEND_VISIBLE_DEVICES", VISIBLE)


def conf_addresses(text: str) -> dict[int, str]:
    """Return the address of each device id from the `address_N=IP` lines of /etc/hccn.conf. Ignore other keys.

    Raise HostfileError for a line that is neither `key=value` nor a comment, for an invalid id or address, and for a
    duplicate device.
    """
    found: dict[int, str] = {}
    for place, line in enumerate(map(str.strip, text.splitlines()), 1):
        if not line or line.startswith("#"):
            continue
        key, equals, value = map(str.strip, line.partition("="))
        if not equals:
            raise HostfileError(f"{_CONF}, line {place}: {line[:60]!r}; lines read address_0=192.168.1.8")
        if not key.startswith("address_"):
            continue
        number = _KEY.fullmatch(key)
        if not number or int(number[1]) > LAST_DEVICE:
            raise HostfileError(f"{_CONF}, line {place}: {key[:60]!r} names no device; ids are 0 to {LAST_DEVICE}")
        if (ip := address(value)) is None:
            raise HostfileError(f"{_CONF}, line {place}: {value[:60]!r} is no IPv4 or IPv6 address")
        device = int(number[1])
        if device in found:
            raise HostfileError(
                f"{_CONF}, line {place}: device {device} has a second address, {ip} and {found[device]}"
            )
        found[device] = ip
    return found


def tool_address(text: str, device: int) -> str:
    """Return the address in the output of `hccn_tool -i N -ip -g`: `ipaddr:192.168.1.8` and a line with the mask.

    Raise HostfileError unless there is exactly one address.
    """
    values = [line.partition(":")[2].strip() for line in text.splitlines() if line.strip().startswith("ipaddr:")]
    ip = address(values[0]) if len(values) == 1 else None
    if ip is None:
        raise HostfileError(f"hccn_tool -i {device} -ip -g printed {text.strip()[:80]!r}; one line ipaddr:IP is wanted")
    return ip


def device_ids(environ: Mapping[str, str]) -> tuple[int, ...] | None:
    """Return the device ids in the environment (`0,1` or `0-3,6`), ascending; None if none of ID_VARIABLES is set.

    Raise HostfileError for any other text and for a duplicate id.
    """
    name = next((name for name in ID_VARIABLES if environ.get(name)), None)
    return None if name is None else _ids(environ[name], name)


def _ids(text: str, name: str) -> tuple[int, ...]:
    ids: list[int] = []
    for part in text.split(","):
        found = _IDS.fullmatch(part.strip())
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, -1)
        if not first <= last <= LAST_DEVICE:
            raise HostfileError(f"{name} is {text[:60]!r}; ids read 0,1 or 0-3, and none is above {LAST_DEVICE}")
        ids += range(first, last + 1)
    if len(set(ids)) < len(ids):
        raise HostfileError(f"{name} is {text[:60]!r}; an id appears twice")
    return tuple(sorted(ids))


def line(name: str, ip: str, devices: Iterable[Device]) -> str:
    """Return the line that a node sends to the job's first node: `n1 10.0.0.1 0=192.168.1.8 1=192.168.1.9`.

    A device without an address is `0=`. A device with an id in a super pod is `0=192.168.1.8/4`.
    """
    words = (
        f"{device.id}={device.ip}" + ("" if device.super_id is None else f"/{device.super_id}") for device in devices
    )
    return " ".join((name, ip, *words))


def visible(text: str) -> str:
    """Return the device ids in a node's line, as a value for the variable VISIBLE: `0,1`."""
    return ",".join(str(device.id) for device in _parsed(text)[2])


def complete(allocation: Allocation, lines: Iterable[str]) -> Allocation:
    """Return the allocation with the addresses and devices from the lines of all its nodes. Each device is a slot.

    Raise HostfileError for an unreadable line, a host without a line or with two lines, and a line of an unknown host.
    """
    said: dict[str, Host] = {}
    tasks = {host.name: host.tasks for host in allocation.hosts}
    for text in lines:
        name, ip, devices = _parsed(text)
        if name not in tasks:
            raise HostfileError(f"{name} sent a line, and is no host of {allocation.nodelist}")
        if name in said:
            raise HostfileError(f"{name} sent two lines; each host sends one")
        said[name] = Host(name, len(devices), tasks[name], ip, devices)
    silent = [name for name in tasks if name not in said]
    if silent:
        raise HostfileError(f"{silent[0]} sent no line (hosts without a line: {len(silent)}); each host sends one")
    return allocation._replace(hosts=tuple(said[name] for name in tasks))


def from_lines(lines: Iterable[str], *, job_id: int = 0, distribution: str = "block") -> Allocation:
    """Make an allocation from the lines only: hosts in the order of the lines, with one task per device.

    Raise HostfileError if there are no lines, for an unreadable line, and for a host with two lines.
    """
    hosts = (Host(name, len(devices), len(devices), ip, devices) for name, ip, devices in map(_parsed, lines))
    return Allocation(tuple(hosts), job_id, distribution=distribution)


def _parsed(text: str) -> tuple[str, str, tuple[Device, ...]]:
    name, ip, *words = text.split() if len(text.split()) > 2 else ("", "")
    devices = []
    for word in words:
        found = re.fullmatch(r"([0-9]{1,3})=([0-9a-fA-F.:]*)(?:/([0-9]{1,10}))?", word, re.ASCII)
        if not found or (found[2] and address(found[2]) is None):
            break
        devices.append(Device(int(found[1]), found[2], int(found[3]) if found[3] else None))
    if not name or len(devices) < len(words) or address(ip) is None:
        raise HostfileError(f"{text.strip()[:80]!r} is not the line of a node; lines read n1 10.0.0.1 0=192.168.1.8")
    return name, ip, tuple(devices)
