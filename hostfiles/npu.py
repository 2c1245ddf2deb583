"""What a node says of its Ascend devices: their ids and addresses, as texts of the driver and of Slurm.

An id is the physical one, N in /dev/davinciN: `address_N` in /etc/hccn.conf and `hccn_tool -i N` count so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from hostfiles.allocation import Allocation, Device, Host
from hostfiles.errors import HostfileError
from hostfiles.ranktable_rules import LAST_DEVICE, address

TYPE_CHECKING = False  # as in `typing` (see hostfiles.allocation)
if TYPE_CHECKING:
    from typing import Final

_KEY: Final = re.compile(r"address_([0-9]{1,3})", re.ASCII)
_IDS: Final = re.compile(r"([0-9]{1,3})(?:-([0-9]{1,3}))?", re.ASCII)
_CONF: Final = "/etc/hccn.conf"

# Where the ids of a node's devices stand, the first that is set. Slurm's own name the devices of the step or job;
# ASCEND_VISIBLE_DEVICES is read by Ascend's container runtime, ASCEND_RT_VISIBLE_DEVICES by its driver.
VISIBLE: Final = "ASCEND_RT_VISIBLE_DEVICES"
ID_VARIABLES: Final = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "ASCEND_VISIBLE_DEVICES", VISIBLE)


def conf_addresses(text: str) -> dict[int, str]:
    """Device id: address, from the `address_N=IP` lines of /etc/hccn.conf; other keys and comments say nothing here.

    Raises HostfileError naming the line that is no `key=value`, has no address or has a device a second time.
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
    """The address in the output of `hccn_tool -i N -ip -g`: `ipaddr:192.168.1.8` and a line with the mask.

    Raises HostfileError where there is not exactly one.
    """
    values = [line.partition(":")[2].strip() for line in text.splitlines() if line.strip().startswith("ipaddr:")]
    ip = address(values[0]) if len(values) == 1 else None
    if ip is None:
        raise HostfileError(f"hccn_tool -i {device} -ip -g printed {text.strip()[:80]!r}; one line ipaddr:IP is wanted")
    return ip


def device_ids(environ: Mapping[str, str]) -> tuple[int, ...] | None:
    """The ids that the environment names, ascending, from `0,1` or `0-3,6`; None where no variable is set.

    Raises HostfileError for any other text and for an id that stands twice.
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
        raise HostfileError(f"{name} is {text[:60]!r}; an id stands there twice")
    return tuple(sorted(ids))


def line(name: str, ip: str, devices: Iterable[Device]) -> str:
    """One line in which a node tells the first one what it found: `n1 10.0.0.1 0=192.168.1.8 1=192.168.1.9`.

    A device without an address is `0=`; one with an id in a super pod is `0=192.168.1.8/4`.
    """
    words = (
        f"{device.id}={device.ip}" + ("" if device.super_id is None else f"/{device.super_id}") for device in devices
    )
    return " ".join((name, ip, *words))


def visible(text: str) -> str:
    """The ids in a node's line, as its processes have them in VISIBLE: `0,1`."""
    return ",".join(str(device.id) for device in _parsed(text)[2])


def complete(allocation: Allocation, lines: Iterable[str]) -> Allocation:
    """The allocation with the address and the devices that the lines of all its nodes say; slots become devices.

    Raises HostfileError for a line that cannot be read, a host that has none, and one that has two or is no host.
    """
    said: dict[str, Host] = {}
    tasks = {host.name: host.tasks for host in allocation.hosts}
    for text in lines:
        name, ip, devices = _parsed(text)
        if name not in tasks or name in said:
            raise HostfileError(
                f"{name} spoke {'twice' if name in said else 'and is no host'} of {allocation.nodelist}"
            )
        said[name] = Host(name, len(devices), tasks[name], ip, devices)
    silent = [name for name in tasks if name not in said]
    if silent:
        raise HostfileError(f"{silent[0]} did not say its devices, one of {len(silent)}; each host says one line")
    return allocation._replace(hosts=tuple(said[name] for name in tasks))


def alone(lines: Iterable[str], *, job_id: int = 0, distribution: str = "block") -> Allocation:
    """The allocation of those that speak and nobody else, in the lines' order, with one task a device.

    Raises HostfileError for no lines, for one that cannot be read, and for a host that has two.
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
        raise HostfileError(f"{text.strip()[:80]!r} is no node's line; it reads n1 10.0.0.1 0=192.168.1.8")
    return name, ip, tuple(devices)
