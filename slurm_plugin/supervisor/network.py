"""Find the addresses at which other nodes reach this node and its Ascend devices, and an address's interface.

The addresses of devices come from /etc/hccn.conf, as in HCCL's own tools. For a device that is not in the file,
hccn_tool asks the driver, which mostly needs root.
"""

import fcntl
import ipaddress
import os
import re
import shutil
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from hostfiles import Device, HostfileError, npu
from prechecks.checks import dns
from slurm_plugin.slurm.process import Result, run

_SIOCGIFADDR = 0x8915  # netdevice(7): the address of an interface
_REQUEST = 256  # bytes, more than struct ifreq has
_TRIED = 3  # hosts to which a route is looked for
_PLAIN = re.compile(r"(?!lo$)[A-Za-z0-9_.:-]+", re.ASCII)  # an interface whose name needs no quotes


def own_address(name: str) -> str:
    """Return the address of a node's name, IPv4 if it has one. Raise HostfileError as `own_addresses` does."""
    return own_addresses(name)[0]


def own_addresses(name: str) -> tuple[str, ...]:
    """Return the addresses to which this machine resolves a node's name, IPv4 first.

    Raise HostfileError if the name has no address, or only loopback and link-local ones, such as Debian's 127.0.1.1.
    """
    try:
        found = socket.getaddrinfo(os.fsencode(name), None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise HostfileError(
            f"{name} has no address here ({error.strerror}); a name service or /etc/hosts has to know it"
        ) from error
    addresses = sorted((family != socket.AF_INET, str(place[0])) for family, _, _, _, place in found)
    usable = [ip for _, ip in addresses if not ip.startswith(("127.", "fe80:")) and ip != "::1"]
    if not usable:
        raise HostfileError(f"{name} is {addresses[0][1]} here, which no other node can reach; mend /etc/hosts")
    return tuple(usable)


def loopback(hosts: Sequence[str]) -> str:
    """Return `127.0.1.1 eth0` if this machine's own name is that loopback address, and eth0 leads to the other hosts.

    Return only the address if no interface is known, and an empty text if the name is another address, or if there is
    no other host. PyTorch's Gloo listens on the first address of the machine's name.
    """
    own = socket.gethostname()
    others = [host for host in hosts if host.partition(".")[0] != own.partition(".")[0]]
    address = dns.loopback(own) if others else ""
    for other in others[:_TRIED] if address else ():
        with suppress(HostfileError, OSError):
            ip = own_address(other)
            with socket.socket(socket.AF_INET6 if ":" in ip else socket.AF_INET, socket.SOCK_DGRAM) as asking:
                asking.connect((ip, 9))  # sends nothing
                found = interface(asking.getsockname()[0])
            if _PLAIN.fullmatch(found):
                return f"{address} {found}"
    return address


def interface(address: str) -> str:
    """Return the interface that has this IPv4 address, such as eth0; empty if no interface has it."""
    if not address or ipaddress.ip_address(address).version != 4:
        return ""
    wanted = socket.inet_aton(address)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            request = struct.pack(f"{_REQUEST}s", os.fsencode(name))
            try:
                answer = fcntl.ioctl(asking.fileno(), _SIOCGIFADDR, request)
            except OSError:  # an interface without an address
                continue
            if answer[20:24] == wanted:
                return name
    return ""


CONF: Final = Path("/etc/hccn.conf")
DEVICES: Final = Path("/dev")
TOOL: Final = "/usr/local/Ascend/driver/tools/hccn_tool"  # the driver installs it there
TOOL_DEADLINE_S: Final = 10.0

_DEVICE = re.compile(r"davinci([0-9]+)", re.ASCII)

Tool = Callable[[int], Result]


def device_line(name: str, environ: Mapping[str, str], *, alone: bool = False) -> str:
    """Return the line of node `name` for the job's first node, which reads it with `hostfiles.npu.complete`.

    `alone`: the job has no other node. Raise HostfileError if devices or addresses cannot be read.
    """
    return npu.line(name, own_address(name), devices(environ, tool=_tool, alone=alone))


def devices(
    environ: Mapping[str, str], *, tool: Tool, alone: bool = False, conf: Path = CONF, device_directory: Path = DEVICES
) -> tuple[Device, ...]:
    """Return the job's devices on this node, with their ids and addresses. `alone`: an address may be missing.

    The ids come from the environment (`hostfiles.npu.ID_VARIABLES`), else from all /dev/davinciN.
    """
    ids = npu.device_ids(environ) or _present(device_directory)
    known, reason = _configured(conf)
    return tuple(
        Device(number, known.get(number) or ("" if alone else _driver_address(number, tool, reason))) for number in ids
    )


def _present(directory: Path) -> tuple[int, ...]:
    """Return the ids of all device files. Raise HostfileError if there are none."""
    found = (_DEVICE.fullmatch(entry.name) for entry in directory.iterdir())
    ids = sorted(int(match[1]) for match in found if match)
    if not ids:
        raise HostfileError(f"no {directory}/davinciN here, and none of {', '.join(npu.ID_VARIABLES)} is set")
    return tuple(ids)


def _configured(conf: Path) -> tuple[dict[int, str], str]:
    """Return the addresses in the file, and the error text for a device without an address in the file."""
    try:
        return npu.conf_addresses(conf.read_text(encoding="utf-8")), f"{conf} has no address of it"
    except OSError as error:
        return {}, f"{conf}: {error.strerror}"
    except UnicodeDecodeError:
        raise HostfileError(f"{conf}: no text; lines read address_0=192.168.1.8") from None


def _driver_address(number: int, tool: Tool, reason: str) -> str:
    """Ask the driver for an address. If this fails, raise HostfileError with `reason` and the driver's error."""
    try:
        result = tool(number)
    except OSError as error:
        raise HostfileError(f"device {number}: {reason}, and hccn_tool: {error.strerror}") from error
    if result.code is None:
        raise HostfileError(f"device {number}: {reason}, and hccn_tool said nothing in {TOOL_DEADLINE_S:g} s")
    if result.code:
        said = (result.err or result.out).strip()[:80]
        raise HostfileError(f"device {number}: {reason}, and hccn_tool ended with {result.code}: {said}")
    return npu.tool_address(result.out, number)


def _tool(number: int) -> Result:
    program = TOOL if Path(TOOL).exists() else shutil.which("hccn_tool") or TOOL
    return run([program, "-i", str(number), "-ip", "-g"], deadline_s=TOOL_DEADLINE_S, environ={"LC_ALL": "C"})
