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


def count(node: str, gres_conf: str, root: str = "") -> dict[str, Any]:
    """Return the equipment of this node now. `gres_conf` is a path, `root` a prefix of /sys and /proc.

    `gpus` is the number of GPUs in gres.conf, else of the driver; `missing` is how many of them have no device file.
    """
    try:
        files = slurmconf.gpu_files(node, gres_conf)
    except ValueError:  # not in the form of gres.conf(5)
        files = []
    device = slurmconf.numbered_files(files)
    promised = len(files) if device else 0
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


def _is_device(path: str) -> bool:
    import stat  # noqa: PLC0415 - no check needs it

    try:
        return stat.S_ISCHR(os.stat(path).st_mode)  # noqa: PTH116
    except OSError:
        return False
