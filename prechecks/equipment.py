"""Count the equipment of a node. Later the periodic check fails if counted equipment is missing.

`count` returns a node's entry for `equipment` in the site file. It reads gres.conf, the NVIDIA driver's directory,
sysfs and the routes of proc(5). It includes Ethernet interfaces with a default route, and InfiniBand interfaces
(ARPHRD_INFINIBAND, if_arp.h), if they are up. It excludes tunnels, wireless interfaces and interfaces on USB.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from prechecks.checks import nic
from prechecks.measure import nvidia, slurmconf, system

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from prechecks.verdict import Context

ETHERNET, INFINIBAND = "1", "32"  # if_arp.h
ROUTES, ROUTES6 = "/proc/net/route", "/proc/net/ipv6_route"
UP, REJECT = 0x1, 0x200  # RTF_UP, RTF_REJECT (route.h)
DEVICE = "/dev/nvidia%d"


def apply(context: Context, settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """In the periodic check, add this node's equipment to the settings. The site's own settings take precedence."""
    if context.hook != "periodic":
        return settings
    every = settings.get("equipment", ())
    own = next((each for each in every if slurmconf.in_node_list(context.node, each["nodes"])), None)
    if own is None:
        return settings
    made = {**settings}
    gpus, interfaces = settings.get("gpu-check", {}), settings.get("nic", {})
    if own["gpus"] and gpus.get("count") is None:
        device = {"device": own["device"]} if own["device"] else {}
        made["gpu-check"] = {**gpus, **device, "count": own["gpus"]}
    if own["interfaces"] and not interfaces.get("interfaces"):
        made["nic"] = {**interfaces, "interfaces": own["interfaces"]}
    return made


def count(node: str, gres: str, root: str = "") -> dict[str, Any]:
    """Return the equipment of this node now. `gres` is the path of gres.conf, `root` a prefix of /sys and /proc.

    `gpus` is the number of GPUs in gres.conf, else of the driver; `missing` is how many of them have no device file.
    """
    try:
        device, promised = _gres_gpus(node, gres)
    except ValueError:  # not in the form of gres.conf(5)
        device, promised = "", 0
    there = [name for name in system.entries(f"{root}{nvidia.DRIVER}") if nvidia.is_bus(name)]
    if not promised and there:
        device, promised = DEVICE, len(there)
    present = sum(_is_device(device % number) for number in range(promised)) if device else 0
    return {
        "node": node,
        "gpus": promised,
        "device": "" if device == DEVICE else device,
        "interfaces": interfaces(root),
        "missing": promised - present,
    }


def interfaces(root: str = "") -> list[str]:
    """Return the interfaces that the node must keep, sorted by name."""
    routed = _routed_interfaces(system.text(f"{root}{ROUTES}") or "", system.text(f"{root}{ROUTES6}") or "")
    net = f"{root}{nic.ROOT}"
    return [name for name in system.entries(net) if _is_permanent(f"{net}/{name}", routed=name in routed)]


def _is_permanent(path: str, *, routed: bool) -> bool:
    kind = system.text(f"{path}/type")
    if not (kind == INFINIBAND or (kind == ETHERNET and routed)):
        return False
    if any(os.path.exists(f"{path}/{sign}") for sign in ("tun_flags", "wireless", "phy80211")):  # noqa: PTH110
        return False
    if "/usb" in os.path.realpath(f"{path}/device"):
        return False
    return system.text(f"{path}/operstate") in nic.UP and system.text(f"{path}/carrier") == "1"


def _routed_interfaces(routes: str, routes6: str) -> set[str]:
    """Return the interfaces of default routes. The formats of both files are in proc(5) and fib_trie.c."""
    found = set()
    for line in routes.splitlines()[1:]:
        words = line.split()
        if len(words) > 7 and words[1] == words[7] == "00000000" and _is_up(words[3]):
            found.add(words[0])
    for line in routes6.splitlines():
        words = line.split()
        if len(words) == 10 and words[0] == "0" * 32 and words[1] == "00" and _is_up(words[8]):
            found.add(words[9])
    return found


def _is_up(flags: str) -> bool:
    return int(flags, 16) & (UP | REJECT) == UP


def _gres_gpus(node: str, path: str) -> tuple[str, int]:
    """Return the GPUs of this node in gres.conf(5): the pattern of their device files, and their number.

    The number is 0 if gres.conf names no files, or if the files are not numbered from 0 with one pattern.
    """
    numbers: dict[str, set[int]] = {}
    for values in _gpu_lines(node, path):
        for item in slurmconf.items(values.get("file", "")):
            head, bracket, rest = item.partition("[")
            ranges = rest.partition("]")[0] if bracket else head[len(head.rstrip("0123456789")) :]
            head = head if bracket else head.rstrip("0123456789")
            if not ranges or (bracket and not item.endswith("]")):
                return "", 0
            numbers.setdefault(head, set()).update(slurmconf.numbers(ranges))
    if len(numbers) != 1:
        return "", 0
    ((head, found),) = numbers.items()
    return (f"{head}%d", len(found)) if found == set(range(len(found))) and "%" not in head else ("", 0)


def _gpu_lines(node: str, path: str) -> list[dict[str, str]]:
    """Return the lines of gres.conf about GPUs of this node; none if the file is missing."""
    try:
        lines = [_pairs(line) for line in slurmconf.lines(path)]
    except OSError:
        return []
    return [
        each
        for each in lines
        if each.get("name", "").lower() == "gpu"
        and ("nodename" not in each or slurmconf.in_node_list(node, each["nodename"]))
    ]


def _pairs(line: str) -> dict[str, str]:
    return {word.partition("=")[0].lower(): word.partition("=")[2] for word in line.split()}


def _is_device(path: str) -> bool:
    import stat  # noqa: PLC0415 - no check needs it

    try:
        return stat.S_ISCHR(os.stat(path).st_mode)  # noqa: PTH116
    except OSError:
        return False
